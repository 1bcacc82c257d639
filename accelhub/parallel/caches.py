"""Has transformers make static caches for the KV heads that a chip holds.

transformers makes them ahead of time where prefill is chunked, from the heads that its own plans leave on a chip. With
accelhub's styles the attention modules know better.
"""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def count_own_kv_heads() -> None:
    """Put the mend in place, once. A model without accelhub's styles is left to transformers."""
    from transformers.generation.utils import GenerationMixin

    original = GenerationMixin._get_static_cache_init_shape

    @functools.wraps(original)
    def init_shape(self: Any) -> Any:
        shape = original(self)
        own = [module._accelhub_kv_heads for module in self.modules() if getattr(module, "_accelhub_kv_heads", None)]
        if not own or shape is None:
            return shape
        if len(set(own)) > 1 and len(own) != self.config.get_text_config(decoder=True).num_hidden_layers:
            return None  # then each layer makes its cache when it is first used
        return (own[0] if len(set(own)) == 1 else own), shape[1]

    GenerationMixin._get_static_cache_init_shape = init_shape
