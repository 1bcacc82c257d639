"""How many bytes of parameters each chip will hold, from the meta model and the plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelhub.parallel.attention import shares_of
from accelhub.parallel.cuts import cut, is_transposed
from accelhub.parallel.names import ATTENTIONS, DEALT, Style, style_of, wildcard


def bytes_per_rank(model: Any, plan: Mapping[str, str], tp_size: int) -> tuple[int, ...]:
    """Bytes of the parameters on each chip, tied weights once.

    Args:
        model: a transformers model on the meta device, in the data type that it will have.
        plan: module pattern -> style, experts under expert parallelism included.
    """
    shares = {}
    for name, module in model.named_modules():
        if (style := plan.get(wildcard(name))) in ATTENTIONS:
            shares.update(shares_of(style, module, tp_size))
    sizes = [0] * tp_size
    for name, parameter in model.named_parameters():
        owner_name, _, own_name = name.rpartition(".")
        owner, style, splits = model.get_submodule(owner_name), style_of(name, plan), tp_size
        if style in DEALT and owner in shares:
            splits = shares[owner].how.query if style == Style.ROWWISE else shares[owner].splits
        transposed = is_transposed(owner)
        parts = [cut(parameter, own_name, style, splits, part, transposed).numel() for part in range(splits)]
        for rank in range(tp_size):
            sizes[rank] += parts[rank * splits // tp_size] * parameter.element_size()
    return tuple(sizes)
