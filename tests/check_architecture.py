"""What one rank finds of a model that `architectures.save` wrote, sharded; and what the ranks' findings mean.

Usage: python check_architecture.py FOLDER < ORDERS.json > ROWS.json, for tests: each order is an object of `Order`.
"""

import itertools
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import transformers
from transformers import AutoModelForCausalLM

import accelhub
import architectures
import ranks
from accelhub.parallel import planner, rules
from ranks import Result

TOLERANCE = 2e-4
"""Of the largest logit, or of the model's largest gradient."""

LOGITS, GRADIENTS, TOKENS, STATIC = STAGES = ("logits", "gradients", "tokens", "static")
"""What can be checked, in this order; the bytes are always counted."""


@dataclass(frozen=True)
class Case:
    """A saved model, whether accelhub loads it, and what to check."""

    folder: Path
    accelhub: bool = True
    stages: Collection[str] = STAGES


def check(case: Case) -> Iterator[Result]:
    """Load the model sharded over the world and yield what is found, as `ranks.run` wants it.

    The stages of which the whole model is not capable are left out.
    """
    reference = torch.load(case.folder / "reference.pt")
    ids, expected = reference["ids"], reference["logits"]
    yield {"stage": "load"}
    model = _load(case).eval()
    yield {"bytes": held_bytes(model)}
    if LOGITS in case.stages:
        yield {"stage": LOGITS}
        with torch.no_grad():
            found = model(ids).logits
        yield {LOGITS: difference(found, expected)}
    if GRADIENTS in case.stages and reference["gradients"] is not None:
        yield {"stage": GRADIENTS}
        yield {
            GRADIENTS: max(difference(model(ids).logits.detach(), expected), _gradients_difference(model, reference))
        }
    for stage, options in ((TOKENS, {}), (STATIC, {"cache_implementation": "static"})):
        if stage in case.stages and reference[stage] is not None:
            yield {"stage": stage}
            same = torch.equal(architectures.generate(model, ids, **options), reference[stage])
            yield {stage: 0.0 if same else 1.0}


def _load(case: Case) -> Any:
    from transformers.distributed import DistributedConfig

    if case.accelhub:
        arguments = accelhub.shard(case.folder)
    else:
        arguments = {"distributed_config": DistributedConfig(tp_size=torch.distributed.get_world_size())}
    return AutoModelForCausalLM.from_pretrained(case.folder, dtype=torch.float32, **arguments)


def held_bytes(model: Any) -> int:
    """Bytes of the parameters in this rank's memory, tied ones once."""
    local = [parameter.to_local() if hasattr(parameter, "to_local") else parameter for parameter in model.parameters()]
    return sum(part.numel() * part.element_size() for part in {part.data_ptr(): part for part in local}.values())


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a fraction of the largest expected value; infinite if the shapes differ."""
    if hasattr(found, "full_tensor"):
        found = found.full_tensor()
    if found.shape != expected.shape:
        return float("inf")
    return ((found - expected).abs().max() / expected.abs().max()).item()


def _gradients_difference(model: Any, reference: dict[str, Any]) -> float:
    """As `difference`, over all parameters; infinite if another set of parameters has gradients."""
    expected = reference["gradients"]
    found = architectures.gradients(model, reference["ids"])
    if found.keys() != expected.keys():
        return float("inf")
    largest = max(gradient.abs().max() for gradient in expected.values())
    return max(((found[name] - expected[name]).abs().max() / largest).item() for name in expected)


def predicted_bytes(folder: Path, tp: int) -> tuple[int, ...]:
    """Of each rank's parameters, from the configuration alone."""
    return accelhub.parallel.plan(folder, tp).bytes_per_rank


def failed_stage(results: list[Result]) -> str | None:
    """The stage at which a rank raised, died or hung."""
    return next((result.get("stage", "start") for result in results if "status" in result), None)


def summary(results: list[Result], whole_bytes: int, predicted: Sequence[int] | None = None) -> dict[str, Any]:
    """The findings of all ranks as one.

    Has `status` (ok, wrong, error, hang) and the first `stage` that is not ok; `logits_error`; for each stage
    STAGE_status, empty if it was not checked; `error`; the bytes of the fullest rank, the fraction of the whole model
    that they are, and whether the ranks hold the predicted bytes.
    """
    row: dict[str, Any] = {"status": "ok", "stage": "", "error": ""}
    raised = next((result for result in results if result.get("status") == "error"), None)
    broken = raised or next((result for result in results if "status" in result), None)
    for stage in STAGES:
        found = [result[stage] for result in results if stage in result]
        if broken is not None and broken.get("stage") == stage:
            row[f"{stage}_status"] = broken["status"]
        elif len(found) == len(results):
            # written so that NaN is wrong
            row[f"{stage}_status"] = "ok" if all(value < TOLERANCE for value in found) else "wrong"
        else:
            row[f"{stage}_status"] = ""
        if stage == LOGITS and found:
            row["logits_error"] = max(found)
    if broken is not None:
        row |= {"status": broken["status"], "stage": broken.get("stage", "start"), "error": broken["error"]}
    # what is wrong came before what broke, which ended the check
    if wrong := next((stage for stage in STAGES if row[f"{stage}_status"] == "wrong"), None):
        row |= {"status": "wrong", "stage": wrong}
    held = [result["bytes"] for result in results if "bytes" in result]
    if len(held) == len(results):
        row |= {"bytes": max(held), "held": round(max(held) / whole_bytes, 4)}
        if predicted is not None:
            row["predicted_bytes"] = held == list(predicted)
    return row


@dataclass(frozen=True)
class Order:
    """A model to check: its type, settings for `architectures.config`, ranks, and a rule to do without."""

    model_type: str
    settings: dict[str, Any]
    tp: int
    without_rule: str = ""


def main(orders: list[Order], folder: Path) -> list[dict[str, Any]]:
    """A summary for each order, in its place."""
    rows: dict[int, dict[str, Any]] = {}
    numbered = sorted(enumerate(orders), key=lambda item: (item[1].tp, item[1].without_rule))
    for (tp, without), group in itertools.groupby(numbered, key=lambda item: (item[1].tp, item[1].without_rule)):
        planner.RULES = tuple(rule for rule in rules.RULES if rule.name != without)
        cases = {}
        for number, order in group:
            cases[number] = Case(folder / str(number))
            architectures.save(order.model_type, cases[number].folder, **order.settings)
        expected = {case: architectures.attempt(predicted_bytes, case.folder, tp) for case in cases.values()}
        for number, (case, results) in zip(cases, ranks.run(tp, check, list(cases.values())), strict=True):
            whole_bytes = torch.load(case.folder / "reference.pt")["bytes"]
            rows[number] = summary(results, whole_bytes, expected[case])
    return [rows[number] for number in range(len(orders))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    json.dump(main([Order(**order) for order in json.load(sys.stdin)], Path(sys.argv[1])), sys.stdout)
