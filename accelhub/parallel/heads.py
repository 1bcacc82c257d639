"""The heads of an attention module, and how they are dealt out over chips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_QUERY: Final = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_KEY_VALUE: Final = ("num_key_value_heads", "num_kv_heads", "kv_heads")
_HEAD_DIM: Final = ("head_dim", "attention_head_size", "head_size", "dim_head")
_WIDTH: Final = ("all_head_size", "embed_dim", "split_size", "hidden_size", "d_model_size", "dim", "inner_dim")
_KEY_VALUE_WIDTH: Final = ("kv_dim",)


@dataclass(frozen=True)
class Heads:
    """How many heads an attention module has."""

    query: int
    key_value: int


@dataclass(frozen=True)
class Deal:
    """Over how many of the chips an attention's heads are dealt.

    Attributes:
        chips: all of them, tp_size.
        query: over so many the query heads are split; each split is held by `copies` chips.
        key_value: over so many the KV heads are split; query // key_value chips share one KV head.
    """

    chips: int
    query: int
    key_value: int

    @property
    def even(self) -> bool:
        """Every chip has query and KV heads of its own, as transformers' own plan supposes."""
        return self.query == self.key_value == self.chips

    @property
    def copies(self) -> int:
        return self.chips // self.query

    @property
    def sharing(self) -> int:
        """How many chips with different query heads use the same KV heads."""
        return self.query // self.key_value


def deal(heads: Heads, tp_size: int) -> Deal:
    """The deal that splits most and gives every chip exactly the KV heads that its query heads use.

    The largest divisor of `tp_size` over which the query heads divide, and over which the KV heads divide too or each
    KV head falls to as many chips as there are for it; Deal(tp_size, 1, 1), no split, if there is none.
    """
    for chips in range(tp_size, 0, -1):
        if tp_size % chips or heads.query % chips:
            continue
        if heads.key_value % chips == 0:
            return Deal(tp_size, chips, chips)
        if chips % heads.key_value == 0:
            return Deal(tp_size, chips, heads.key_value)
    return Deal(tp_size, 1, 1)


def heads_of(module: Any) -> Heads | None:
    """The heads of an attention with k_proj, read from its projections; None for any other module."""
    head_dim, groups = getattr(module, "head_dim", None), getattr(module, "num_key_value_groups", None)
    width = getattr(getattr(module, "k_proj", None), "out_features", None)
    if not isinstance(head_dim, int) or not isinstance(groups, int) or not isinstance(width, int):
        return None
    return Heads(width // head_dim * groups, width // head_dim)


def counted_heads(module: Any) -> Heads | None:
    """The heads of any attention that counts them in an attribute; None for a module that does not."""
    query = _first(module, _QUERY)
    return Heads(query, _first(module, _KEY_VALUE) or query) if query else None


def head_dim_of(module: Any) -> int:
    """The size of one head of an attention that counts its heads; 0 if it does not say."""
    return _first(module, _HEAD_DIM)


def count_own_heads(module: Any, how: Deal) -> None:
    """Have an attention count this chip's heads, and their width, in place of all.

    Only for attentions whose plan was derived: `accelhub.parallel.proof` shows that it is right for the module at hand.
    """
    heads = counted_heads(module)
    if heads is None:
        return
    head_dim = head_dim_of(module)
    for names, divisor in ((_QUERY, how.query), (_KEY_VALUE, how.key_value)):
        _divide(module, names, divisor)
    if head_dim:
        widths = [name for name in _WIDTH if getattr(module, name, None) == heads.query * head_dim]
        _divide(module, widths, how.query)
    else:
        _divide(module, _WIDTH, how.query)
    _divide(module, _KEY_VALUE_WIDTH, how.key_value)
    if isinstance(getattr(module, "num_key_value_groups", None), int):
        module.num_key_value_groups = heads.query // how.query // (heads.key_value // how.key_value)


def _first(module: Any, names: Iterable[str]) -> int:
    values = (getattr(module, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), 0)


def _divide(module: Any, names: Iterable[str], divisor: int) -> None:
    for name in names:
        if isinstance(value := getattr(module, name, None), int):
            setattr(module, name, value // divisor)
