"""What differs between the transformers releases that are supported, by capability."""

from __future__ import annotations

from accelhub.parallel.repairs import REPLICATE


def provide_replicate() -> None:
    """Register the style that leaves a module whole on every chip, where transformers lacks it (5.20 does)."""
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES, TensorParallelLayer

    if REPLICATE not in ALL_PARALLEL_STYLES:
        ALL_PARALLEL_STYLES.register(REPLICATE, TensorParallelLayer())
