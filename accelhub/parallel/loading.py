"""Mends how transformers loads a fused tensor of a checkpoint into several split parameters.

transformers gives each chip its part of the fused tensor before it takes it apart, so a chip gets rows of the wrong
parameter. Here a tensor that is longer than the parameter it feeds is read whole, taken apart by transformers, and each
parameter then cut to this chip's part.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def read_fused_tensors_whole() -> None:
    """Put the mend in place, once. It leaves every other tensor to transformers."""
    import torch
    from transformers import core_model_loading
    from transformers.distributed.sharding_utils import DtensorShardOperation

    set_parameter = core_model_loading.set_param_for_module

    class WholeIfFused(DtensorShardOperation):
        def __init__(self, parameter: Any) -> None:
            super().__init__(parameter)
            self.shape = tuple(parameter.shape)

        def shard_tensor(
            self, source: Any, tensor_idx: int | None = None, device: Any = None, dtype: Any = None
        ) -> Any:
            shape = tuple(source.shape) if isinstance(source, torch.Tensor) else tuple(source.get_shape())
            if len(shape) == len(self.shape) and any(
                long > short for long, short in zip(shape, self.shape, strict=True)
            ):
                return source[...].to(device=device, dtype=dtype)
            return super().shard_tensor(source, tensor_idx=tensor_idx, device=device, dtype=dtype)

    def set_cut(model: Any, name: str, tensor: Any, *rest: Any, **named: Any) -> None:
        module, _, parameter = name.rpartition(".")
        split = getattr(model.get_submodule(module), parameter, None)
        if hasattr(split, "to_local") and tensor.shape == split.shape != split.to_local().shape:
            tensor = DtensorShardOperation(split).shard_tensor(tensor, device=tensor.device, dtype=tensor.dtype)
        set_parameter(model, name, tensor, *rest, **named)

    core_model_loading.DtensorShardOperation = WholeIfFused
    core_model_loading.set_param_for_module = set_cut
