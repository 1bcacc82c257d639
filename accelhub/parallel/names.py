"""Names of styles in a plan: those of transformers that accelhub reads, and accelhub's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Gradients of a module under "replicate" are those of one process. The style "replicated_with_grad_allreduce" is for
# norms over a chip's own heads: on a whole attention, as the TPU guide has it, it multiplies gradients by tp_size.
REPLICATE: Final = "replicate"
HEAD_NORM: Final = "replicated_with_grad_allreduce"
COLWISE: Final = "colwise"
ROWWISE: Final = "rowwise"
PACKED_COLWISE: Final = "packed_colwise"
GATHERED_HEAD: Final = "colwise_gather_output"
EMBEDDING: Final = "embedding_rowwise"

KEY_VALUE: Final = ("k_proj", "v_proj")


class Style:
    """accelhub's styles; parallel/styles.py says what each does."""

    ATTENTION: Final = "accelhub_attention"
    DERIVED_ATTENTION: Final = "accelhub_derived_attention"
    DERIVED_GROUPS: Final = "accelhub_derived_groups"
    COLWISE: Final = "accelhub_colwise"
    COLWISE_HALVES: Final = "accelhub_colwise_halves"
    COLWISE_THIRDS: Final = "accelhub_colwise_thirds"
    QKV_SLICE: Final = "accelhub_qkv_slice"
    ROWWISE: Final = "accelhub_rowwise"
    KV_SLICE: Final = "accelhub_kv_slice"
    PARTIAL_GRADIENT: Final = "accelhub_partial_gradient"
    ROWWISE_COPY: Final = "accelhub_rowwise_copy"
    EMBEDDING_COPY: Final = "accelhub_embedding_copy"
    PARTIAL_SUM: Final = "accelhub_partial_sum"


ATTENTIONS: Final = (Style.ATTENTION, Style.DERIVED_ATTENTION, Style.DERIVED_GROUPS)
DEALT: Final = (Style.COLWISE, Style.COLWISE_HALVES, Style.COLWISE_THIRDS, Style.ROWWISE)


def wildcard(name: str) -> str:
    """A module's name with `*` for layer numbers, as plans spell it."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def style_of(parameter: str, plan: Mapping[str, str]) -> str | None:
    """The style under which a parameter falls: its own entry, or that of the module that owns it."""
    pattern = wildcard(parameter)
    return plan.get(pattern) or plan.get(pattern.rpartition(".")[0])
