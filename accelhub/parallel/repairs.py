"""What would go wrong when a model is sharded, and the plan that mends it.

transformers shards a model by a plan: module patterns, with `*` for layer numbers, mapped to styles such as "colwise".
It checks neither heads nor anything else before the forward pass. Here the model is read on the meta device (shapes
only, no weights), and what would break is replicated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from accelhub.types import PlanRepair

# Gradients of a module under "replicate" are those of one process. The style "replicated_with_grad_allreduce", which
# the TPU guide suggests, multiplies them by tp_size.
REPLICATE: Final = "replicate"
_SPLIT: Final = ("colwise", "rowwise", "replicated_with_grad_allreduce")


def repair_heads(model: Any, tp_size: int) -> list[PlanRepair]:
    """Replicate attention whose heads cannot be dealt out evenly.

    Args:
        model: a transformers model on the meta device.
        tp_size: over how many chips it is sharded.
    """
    plan: Mapping[str, str] = model.tp_plan
    repairs: dict[str, PlanRepair] = {}
    for name, module in model.named_modules():
        pattern = wildcard(name)
        heads = _heads(module)
        if heads is None or pattern in repairs or plan.get(f"{pattern}.k_proj") != "colwise":
            continue
        query, key_value = heads
        if query % tp_size == 0 and key_value % tp_size == 0:
            continue
        override = {key: REPLICATE for key, style in plan.items() if key.startswith(f"{pattern}.") and style in _SPLIT}
        reason = f"{query} query and {key_value} KV heads do not divide over {tp_size} chips"
        repairs[pattern] = PlanRepair(override, f"{pattern} is replicated: {reason}")
    return list(repairs.values())


def wildcard(name: str) -> str:
    """A module's name with `*` for layer numbers, as plans spell it."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def _heads(module: Any) -> tuple[int, int] | None:
    """Query and KV heads of an attention module, read from its projections; None for any other module."""
    head_dim, groups = getattr(module, "head_dim", None), getattr(module, "num_key_value_groups", None)
    width = getattr(getattr(module, "k_proj", None), "out_features", None)
    if not isinstance(head_dim, int) or not isinstance(groups, int) or not isinstance(width, int):
        return None
    return width // head_dim * groups, width // head_dim
