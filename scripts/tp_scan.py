"""Shards a tiny model of every causal language model of transformers over CPU ranks, and compares it with the whole.

Usage: python scripts/tp_scan.py OUT.csv [--tp 2,4,8] [--variants kv4,tied] [--only llama,qwen3:kv2:4] [--without]

One row of OUT.csv for each model type, variant, number of ranks, and with or without accelhub. A scan that is started
again with the same OUT.csv goes on where it stopped. `scripts/tp_table.py` makes a table of it.
"""

import argparse
import csv
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # the ranks are the CPU's, and start faster so
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import torch
import transformers

import architectures
import check_architecture as checks
import ranks

STAGES = {"kv2": checks.STAGES, "tied": (checks.LOGITS, checks.GRADIENTS)}
"""What is checked with accelhub; of other variants, and without accelhub, only logits and bytes."""

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tp-scan" / transformers.__version__

KEYS = ("model_type", "variant", "tp", "accelhub")
FIELDS = (
    *("model_type", "architecture", "has_plan", "variant", "tp", "accelhub", "status", "stage", "error"),
    *("logits_error", "logits_status", "gradients_status", "tokens_status", "static_status"),
    *("bytes", "predicted_bytes", "whole_bytes", "held", "seconds"),
)
TIMEOUT_S = 90

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tp", default="2,4,8", help="numbers of ranks")
    parser.add_argument("--variants", default=",".join(architectures.VARIANTS))
    parser.add_argument("--only", default="", help="model types, or TYPE:VARIANT:TP")
    parser.add_argument("--without", action="store_true", help="also without accelhub")
    parser.add_argument("--thorough", action="store_true", help="check everything in all variants")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    wanted = _wanted(arguments)
    done = _done(arguments.out)
    with arguments.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        for model_type, variants_of in wanted.items():
            for row in _scan(model_type, variants_of, arguments, done):
                writer.writerow(row)
                file.flush()


def _wanted(arguments: argparse.Namespace) -> dict[str, dict[int, list[str]]]:
    """Model type -> number of ranks -> variants."""
    everything = {int(tp): arguments.variants.split(",") for tp in arguments.tp.split(",")}
    if not arguments.only:
        return dict.fromkeys(architectures.mapped(), everything)
    wanted: dict[str, dict[int, list[str]]] = {}
    for entry in arguments.only.split(","):
        model_type, *rest = entry.split(":")
        if rest:
            wanted.setdefault(model_type, {}).setdefault(int(rest[1]), []).append(rest[0])
        else:
            wanted[model_type] = everything
    return wanted


def _done(out: Path) -> set[tuple[str, ...]]:
    """The keys of the rows that are there, as they are written."""
    if not out.is_file():
        return set()
    with out.open(newline="") as file:
        return {tuple(row[key] for key in KEYS) for row in csv.DictReader(file)}


def _scan(
    model_type: str, variants_of: dict[int, list[str]], arguments: argparse.Namespace, done: set[tuple[str, ...]]
):
    """The rows of a model type that are not done."""
    for tp, variants in variants_of.items():
        for with_accelhub in (False, True) if arguments.without else (True,):
            base = {"model_type": model_type, "tp": tp, "accelhub": with_accelhub}
            missing = [name for name in variants if (model_type, name, str(tp), str(with_accelhub)) not in done]
            if not missing:
                continue
            if model_type in architectures.UNBUILDABLE:
                reason = architectures.UNBUILDABLE[model_type]
                yield from (base | {"variant": name, "status": "unbuildable", "error": reason} for name in missing)
                continue
            base["has_plan"] = architectures.has_plan(model_type)
            same, refused = _same(model_type, missing)
            yield from (base | {"variant": name, "status": "unbuildable", "error": refused[name]} for name in refused)
            found = _measure(list(same), tp, with_accelhub, arguments.thorough)
            for folder, row in found:
                for name in same[folder]:
                    yield base | row | {"variant": name}
            print(f"{model_type} tp={tp} accelhub={with_accelhub}", flush=True)


def _same(model_type: str, variants: list[str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Saved models -> the variants that they stand for; and the variants that the architecture refuses -> why.

    A model without KV heads of its own has fewer models than variants. Each lies in the folder of the variant that is
    checked most.
    """
    by_config: dict[str, Path] = {}
    same: dict[Path, list[str]] = {}
    refused: dict[str, str] = {}
    for name in sorted(variants, key=lambda name: -len(STAGES.get(name, ()))):
        try:
            config = str(architectures.config(model_type, **architectures.VARIANTS[name]).to_dict())
            if config not in by_config:
                by_config[config] = _saved(model_type, name)
        except Exception as error:  # noqa: BLE001 - whatever transformers raises is its refusal
            refused[name] = ranks.describe(error)
        else:
            same.setdefault(by_config[config], []).append(name)
    return same, refused


def _saved(model_type: str, variant: str) -> Path:
    """The folder of a model; made anew when `architectures` has changed."""
    folder = CACHE / model_type / variant
    reference = folder / "reference.pt"
    source = Path(architectures.__file__)
    if not (reference.is_file() and reference.stat().st_mtime > source.stat().st_mtime):
        reference.unlink(missing_ok=True)
        architectures.save(model_type, folder, **architectures.VARIANTS[variant])
    return folder


def _measure(folders: list[Path], tp: int, with_accelhub: bool, thorough: bool):
    """A row for each folder. After a failure in generation or gradients, what comes after that stage is checked too."""
    stages = {
        folder: checks.STAGES
        if thorough
        else STAGES.get(folder.name, (checks.LOGITS,))
        if with_accelhub
        else (checks.LOGITS,)
        for folder in folders
    }
    # Made here and not in the ranks, this also fills caches that the ranks then start with.
    predicted = {
        folder: architectures.attempt(checks.predicted_bytes, folder, tp) if with_accelhub else None
        for folder in folders
    }
    rows: dict[Path, Row] = {}
    while stages:
        cases = [checks.Case(folder, with_accelhub, left) for folder, left in stages.items()]
        stages = {}
        started = time.monotonic()
        for case, results in ranks.run(tp, checks.check, cases, timeout=TIMEOUT_S):
            reference = torch.load(case.folder / "reference.pt")
            row = checks.summary(results, reference["bytes"], predicted[case.folder])
            row["seconds"] = round(time.monotonic() - started, 1)
            started = time.monotonic()
            failed = checks.failed_stage(results)
            if failed in case.stages:
                after = checks.STAGES[checks.STAGES.index(failed) + 1 :]
                if left := [stage for stage in after if stage in case.stages and failed != checks.LOGITS]:
                    stages[case.folder] = left
            if case.folder in rows:
                later = {f"{stage}_status": row[f"{stage}_status"] for stage in case.stages}
                rows[case.folder] |= later
            else:
                rows[case.folder] = row | {
                    "architecture": _architecture(case.folder),
                    "whole_bytes": reference["bytes"],
                }
    return rows.items()


def _architecture(folder: Path) -> str:
    return transformers.AutoConfig.from_pretrained(folder).architectures[0]


if __name__ == "__main__":
    main()
