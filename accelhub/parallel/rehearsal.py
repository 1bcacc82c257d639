"""A forward pass on the meta device: no weights, no results, but every module is called as it would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rehearse(model: Any, watch: Callable[[Any, Any], None] | None = None) -> None:
    """Run the forward pass of a model on the meta device, for two sequences of five tokens.

    Where the model asks for a number that only a real tensor has, a condition is answered with yes and a number with
    0: masks hide nothing, sequences are not packed.

    Args:
        model: on the meta device; left in evaluation mode.
        watch: called with each PyTorch operation and its arguments.

    Raises:
        Exception: whatever the model's code raises that needs more than that.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Answers(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if watch:
                watch(function, args)
            if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
                return args[0].dtype == torch.bool
            if function is torch.ops.aten._grouped_mm.default and args[0].is_meta:  # it takes bfloat16 only there
                return args[0].new_empty(args[0].shape[0], args[1].shape[-1])
            return function(*args, **(kwargs or {}))

    ids = torch.zeros(2, 5, dtype=torch.long, device="meta")
    with torch.no_grad(), Answers():
        model.eval()(ids, attention_mask=torch.ones_like(ids), use_cache=False)
