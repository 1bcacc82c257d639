"""Mends how transformers loads split parameters whose rows a checkpoint holds together with others, or interleaved.

transformers gives each chip its part of the stored tensor before it takes it apart or puts its rows in order, so a chip
gets the wrong rows. Here such a tensor is read whole, transformers does what it does, and each parameter is then cut to
this chip's part.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def read_fused_tensors_whole() -> None:
    """Put the mend in place, once. It leaves every other tensor to transformers.

    Read whole is what is longer than the parameter that it feeds, and parameters that hold several pieces, each split:
    their pieces may be interleaved.
    """
    import torch
    from torch.distributed.tensor.placement_types import _StridedShard
    from transformers import core_model_loading
    from transformers.distributed.sharding_utils import DtensorShardOperation

    set_parameter = core_model_loading.set_param_for_module

    class WholeIfFused(DtensorShardOperation):
        def __init__(self, parameter: Any) -> None:
            super().__init__(parameter)
            self.shape = tuple(parameter.shape)
            self.pieces = any(isinstance(placement, _StridedShard) for placement in parameter.placements)

        def shard_tensor(
            self, source: Any, tensor_idx: int | None = None, device: Any = None, dtype: Any = None
        ) -> Any:
            shape = tuple(source.shape) if isinstance(source, torch.Tensor) else tuple(source.get_shape())
            longer = any(stored > own for stored, own in zip(shape, self.shape, strict=False))
            if len(shape) == len(self.shape) and (longer or self.pieces):
                return source[...].to(device=device, dtype=dtype)
            return super().shard_tensor(source, tensor_idx=tensor_idx, device=device, dtype=dtype)

    def set_cut(model: Any, name: str, tensor: Any, *rest: Any, **named: Any) -> None:
        module, _, parameter = name.rpartition(".")
        split = getattr(model.get_submodule(module), parameter)
        if hasattr(split, "to_local") and tensor.shape == split.shape != split.to_local().shape:
            tensor = DtensorShardOperation(split).shard_tensor(tensor, device=tensor.device, dtype=tensor.dtype)
        set_parameter(model, name, tensor, *rest, **named)

    core_model_loading.DtensorShardOperation = WholeIfFused
    core_model_loading.set_param_for_module = set_cut
