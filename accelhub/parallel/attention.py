"""How an attention's heads are dealt under a style, and what each of its projections must know of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelhub.parallel.heads import Deal, Heads, count_own_heads, counted_heads, deal, head_dim_of, heads_of
from accelhub.parallel.names import KEY_VALUE, Style

BIASES: Final = ("alibi", "position_bias")
"""Arguments of an attention that hold a bias for each head, shaped (heads, ...) or (batch * heads, ...)."""

FOR_HEADS: Final = (*BIASES, "sinusoidal_pos", "position_embeddings")
"""Arguments of an attention that are used for each head: the biases, and positions, which all heads share."""


@dataclass(frozen=True)
class Share:
    """What a projection must know: its attention's heads, how they are dealt, and whether it makes keys or values."""

    heads: Heads
    how: Deal
    key_values: bool = False

    @property
    def splits(self) -> int:
        """Into how many different parts the projection is split."""
        return self.how.key_value if self.key_values else self.how.query

    @property
    def sharing(self) -> int:
        """How many chips with different query heads hold the same part."""
        return self.how.sharing if self.key_values else 1


def shares_of(style: str, attention: Any, tp_size: int) -> dict[Any, Share]:
    """For every module within an attention its share; empty for a module that is no attention.

    Args:
        style: the attention's style in the plan, one of `names.ATTENTIONS`.
        attention: the module itself, untouched so far.
    """
    owner = attention if style == Style.ATTENTION else heads_owner(attention)
    heads = heads_of(attention) if style == Style.ATTENTION else counted_heads(owner)
    if heads is None:
        return {}
    # Where a KV head stands fused with its query heads, they go together.
    together = style == Style.DERIVED_GROUPS
    how = deal(Heads(heads.key_value, heads.key_value) if together else heads, tp_size)
    return {
        module: Share(heads, how, _makes_key_values(style, heads, owner, name, module))
        for name, module in attention.named_modules()
    }


def heads_owner(attention: Any) -> Any | None:
    """The module within an attention that counts its heads."""
    return next((inner for inner in attention.modules() if counted_heads(inner)), None)


def count_own(style: str, attention: Any, share: Share) -> Any:
    """Have an attention count its chip's heads in place of all; returns the module within it that counts."""
    if style == Style.ATTENTION:
        own = share.heads.query // share.how.query
        attention.num_key_value_groups = own // (share.heads.key_value // share.how.key_value)
        return attention
    owner = heads_owner(attention)
    count_own_heads(owner, share.how)
    return owner


def _makes_key_values(style: str, heads: Heads, owner: Any, name: str, module: Any) -> bool:
    if name.rpartition(".")[2] in KEY_VALUE:
        return True
    if style == Style.ATTENTION or heads.query == heads.key_value:
        return False
    return bool(getattr(module, "out_features", 0) == heads.key_value * head_dim_of(owner))


def own_biases(kwargs: Mapping[str, Any], share: Share, part: int) -> dict[str, Any]:
    """An attention's arguments, with the biases that are given for each head cut to the heads of one part."""
    own = dict(kwargs)
    for name in BIASES:
        if (bias := kwargs.get(name)) is not None:
            each = share.heads.query // share.how.query
            by_head = bias.unflatten(0, (-1, share.heads.query))
            own[name] = by_head.narrow(1, part * each, each).flatten(0, 1)
    return own


def own_query_key_values(fused: Any, share: Share, part: int) -> Any:
    """The heads of one part, from all queries, then keys, then values along the last dimension."""
    import torch

    heads, how = share.heads, share.how
    by_head = fused.unflatten(-1, (heads.query + 2 * heads.key_value, -1))
    queries, key_values = heads.query // how.query, heads.key_value // how.key_value
    first = heads.query + part // how.sharing * key_values
    own = (
        by_head.narrow(-2, part * queries, queries),
        by_head.narrow(-2, first, key_values),
        by_head.narrow(-2, first + heads.key_value, key_values),
    )
    return torch.cat(own, -2).flatten(-2)
