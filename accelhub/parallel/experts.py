"""Whole experts dealt out over the chips (expert parallelism), where a plan leaves them whole on every chip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from accelhub.parallel.names import style_of

WORTH: Final = 0.25
"""Experts are dealt out when a plan leaves at least this fraction of the model's bytes in whole experts."""


def worth_dealing(model: Any, plan: Mapping[str, str], tp_size: int) -> dict[str, str]:
    """The model's own expert-parallel plan, if its experts are most of what every chip would hold; else nothing."""
    experts = dict(model.ep_plan or {})
    held = total = 0
    for name, parameter in model.named_parameters():
        total += parameter.numel()
        if style_of(name, experts) == "grouped_gemm" and style_of(name, plan) is None:
            held += parameter.numel()
            if parameter.shape[0] % tp_size:
                return {}
    return experts if held >= WORTH * total else {}


def without(plan: Mapping[str, str], experts: Mapping[str, str]) -> dict[str, str]:
    """A plan without what the expert-parallel plan takes over: its modules and all within them."""
    if not experts:
        return dict(plan)
    taken = re.compile(rf"(?:{'|'.join(map(re.escape, experts))})(?:\..+)?").fullmatch
    return {pattern: style for pattern, style in plan.items() if not taken(pattern)}
