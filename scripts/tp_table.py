"""Makes docs/tp-support.md of what `scripts/tp_scan.py` found.

Usage: python scripts/tp_table.py SCAN.csv [MORE.csv ...] OUT.md
"""

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

VARIANTS = {
    "kv4": "4 KV heads",
    "kv2": "2 KV heads",
    "kv1": "1 KV head",
    "tied": "tied, 2 KV heads",
    "odd": "vocabulary of 131",
}
Row = dict[str, str]


def main(sources: list[str], out: str) -> None:
    rows = [row for source in sources for row in _read(source)]
    measured = [row for row in rows if row["status"] != "unbuildable"]
    types = sorted({row["model_type"] for row in measured})
    planned = {row["model_type"] for row in measured if row["has_plan"] == "True"}
    chips = sorted({int(row["tp"]) for row in measured})
    mended = [row for row in measured if row["accelhub"] == "True"]
    plain = [row for row in measured if row["accelhub"] == "False"]
    left_out = {row["model_type"]: row["error"] for row in rows if row["model_type"] not in types}
    own = [row for row in mended if row["model_type"] in planned]
    rest = [row for row in mended if row["model_type"] not in planned]
    parts = [
        _HEAD.format(transformers=transformers.__version__, torch=torch.__version__.split("+")[0]),
        f"Of {len(types)} types, {len(planned)} have a plan in transformers.\n",
        *_not_run(types, mended, chips),
        "## Types with a plan: right, of all\n",
        _summary(
            {"transformers alone": [row for row in plain if row["model_type"] in planned], "accelhub": own}, chips
        ),
        "\n## Types without a plan: right, of all\n",
        "The others are refused with what stopped them, unless the list below says that they are wrong.\n",
        _summary({"accelhub": rest}, chips),
        f"\nBytes of every chip as predicted by `accelhub plan`: {_predicted(mended)}.\n",
        "\n## Each type\n",
        _each(types, planned, mended, plain, chips),
        "\n## Not right with accelhub\n",
        _failures(mended),
        "\n## Left out\n",
        *(f"- `{name}`: {_one_line(reason)}\n" for name, reason in sorted(left_out.items())),
    ]
    Path(out).write_text("\n".join(part.rstrip("\n") if part.startswith("- ") else part for part in parts) + "\n")


_HEAD = """# Tensor parallelism by architecture

What `make tp-scan` found with transformers {transformers} and torch {torch}, on CPU processes over gloo.
**Not run on chips.** Every type that transformers maps to a causal language model, as a tiny random model in float32
with 8 query heads. It is *right* if the logits of all ranks equal those of one process. With accelhub and 2 KV heads,
gradients must be equal too, and the tokens of `generate()` with a dynamic and with a static cache, as far as one
process can make them; with tied weights, gradients. "Held" is the fraction of the parameters on the fullest chip: in
models this small norms, routers and what KV heads share weigh more than in real ones.
"""


def _read(source: str) -> list[Row]:
    with Path(source).open(newline="") as file:
        return list(csv.DictReader(file))


def _not_run(types: list[str], rows: list[Row], chips: list[int]) -> list[str]:
    """A line for each number of chips on which the scan has not come to its end."""
    lines = []
    for tp in chips:
        run = {row["model_type"] for row in rows if int(row["tp"]) == tp}
        if missing := [f"`{name}`" for name in types if name not in run]:
            lines.append(f"Not run on {tp} chips so far: {', '.join(missing)}.\n")
    return lines


def _right(rows: Iterable[Row]) -> str:
    statuses = [row["status"] == "ok" for row in rows]
    return f"{sum(statuses)} of {len(statuses)}" if statuses else "not run"


def _summary(columns: dict[str, list[Row]], chips: list[int]) -> str:
    heads = [f"{name}, {tp} chips" for name in columns for tp in chips]
    lines = [["variant", *heads], ["---"] * (len(heads) + 1)]
    for variant, label in VARIANTS.items():
        cells = [
            _right(row for row in rows if row["variant"] == variant and int(row["tp"]) == tp)
            for rows in columns.values()
            for tp in chips
        ]
        lines.append([label, *cells])
    return _table(lines)


def _each(types: list[str], planned: set[str], mended: list[Row], plain: list[Row], chips: list[int]) -> str:
    lines = [
        ["type", "plan", "transformers alone", "accelhub", *(f"held, {tp} chips" for tp in chips)],
        ["---"] * (4 + len(chips)),
    ]
    for name in types:
        found = [row for row in mended if row["model_type"] == name]
        held = [_held(row for row in found if int(row["tp"]) == tp and row["variant"] == "kv2") for tp in chips]
        alone = [row for row in plain if row["model_type"] == name]
        lines.append([f"`{name}`", _plan(name, planned, held), _right(alone), _right(found), *held])
    return _table(lines)


def _plan(name: str, planned: set[str], held: list[str]) -> str:
    if name in planned:
        return "own"
    return "derived" if any(held) else "none"


def _held(rows: Iterable[Row]) -> str:
    return next((f"{float(row['held']):.2f}" for row in rows if row["held"]), "")


def _failures(rows: list[Row]) -> str:
    """One line for each kind of failure of a type."""
    kinds: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            key = (row["model_type"], f"{row['status']} ({row['stage']})", _one_line(row["error"]))
            kinds.setdefault(key, set()).add(row["tp"])
    lines = [
        f"- `{name}` on {', '.join(sorted(tps))} chips: {what}{': ' + error if error else ''}"
        for (name, what, error), tps in sorted(kinds.items())
    ]
    return "\n".join(lines) or "Nothing."


def _predicted(rows: list[Row]) -> str:
    answers = [row["predicted_bytes"] for row in rows if row["predicted_bytes"]]
    return f"{answers.count('True')} of {len(answers)} runs"


def _one_line(text: str) -> str:
    """Without what says the same for every architecture and number of chips."""
    text = re.sub(r"PlanError: .* none can be derived for \d+ chips: |; device_map=.*", "", text)
    return " ".join(text.replace("|", "\\|").split())[:240]


def _table(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:-1], sys.argv[-1])
