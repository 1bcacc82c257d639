"""accelhub's own styles, beside those of transformers: how a module is split, and what it exchanges.

A style is a stateless object that transformers finds in a plan by its name. `shard_param` runs while the model is on
the meta device and says which part of a parameter this chip reads; `install_forward` wraps the module's forward pass.
What the styles of projections must know of their attention, how its heads are dealt, the style of the attention
leaves on them: it comes before them.

Imports torch and transformers, so it is imported only where a model is sharded.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from transformers.distributed.tensor_parallel import (
    ALL_PARALLEL_STYLES,
    TensorParallelLayer,
    _AllReduceBackward,
    _AllReduceForward,
    _use_local_dtensor_params,
)

from accelhub.parallel.attention import FOR_HEADS, Share, count_own, own_biases, own_query_key_values, shares_of
from accelhub.parallel.cuts import is_transposed
from accelhub.parallel.heads import Deal, Heads, heads_of
from accelhub.parallel.names import ATTENTIONS, EMBEDDING, REPLICATE, ROWWISE, Style

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def provide() -> None:
    """Register the styles with transformers, and `replicate` where a release lacks it (5.20 does)."""
    styles = {
        **{style: Attention(style) for style in ATTENTIONS},
        Style.COLWISE: DealtColwise(),
        Style.COLWISE_HALVES: DealtColwise(pieces=2),
        Style.COLWISE_THIRDS: DealtColwise(pieces=3),
        Style.QKV_SLICE: QueryKeyValueSlice(),
        Style.ROWWISE: DealtRowwise(),
        Style.KV_SLICE: KeyValueSlice(),
        Style.PARTIAL_GRADIENT: PartialGradient(),
        Style.ROWWISE_COPY: OwnOutput(ROWWISE),
        Style.EMBEDDING_COPY: OwnOutput(EMBEDDING),
        Style.PARTIAL_SUM: PartialSum(),
        REPLICATE: TensorParallelLayer(),
    }
    for name, style in styles.items():
        if name not in ALL_PARALLEL_STYLES:
            ALL_PARALLEL_STYLES.register(str(name), style)


def sum_gradient(tensor: Tensor, group: Any) -> Tensor:
    """The tensor itself; its gradient becomes the sum of those of the group's chips."""
    if torch.is_grad_enabled() and tensor.requires_grad and group.size() > 1:
        return _AllReduceBackward.apply(tensor, group)
    return tensor


def sum_output(tensor: Tensor, group: Any) -> Tensor:
    """The sum of the group's tensors; its gradient is that of the sum."""
    return _AllReduceForward.apply(tensor, group) if group.size() > 1 else tensor


def share_of(module: nn.Module, mesh: DeviceMesh) -> Share:
    """The share that the module's attention left on it; an even one where there is no such attention."""
    known: Share | None = getattr(module, "_accelhub_share", None)
    if known is None:  # an attention's own parameters are split before the attention can tell
        style = Style.ATTENTION if heads_of(module) else Style.DERIVED_ATTENTION
        known = shares_of(style, module, mesh.size()).get(module)
    chips = mesh.size()
    return known or Share(Heads(chips, chips), Deal(chips, chips, chips))


@cache
def _grid(mesh: DeviceMesh, splits: int, sharing: int) -> DeviceMesh:
    chips = mesh.mesh.flatten().reshape(splits, sharing, mesh.size() // splits // sharing)
    return DeviceMesh(mesh.device_type, chips, mesh_dim_names=("part", "sharing", "copy"))


def grid_of(share: Share, mesh: DeviceMesh) -> DeviceMesh:
    """The chips as (different parts) x (same part, different query heads) x (plain copies); the mesh itself if even."""
    return mesh if share.splits == mesh.size() else _grid(mesh, share.splits, share.sharing)


@dataclass(frozen=True)
class Place:
    """Where a module stands on this chip: its share, the chip's rank, and with whom it exchanges what.

    Attributes:
        parts: the chips with different parts, this one among them.
        sharers: the chips with different query heads that use this chip's KV heads; None if there is no other.
    """

    share: Share
    rank: int
    world: Any
    parts: Any
    sharers: Any


def place_of(share: Share, mesh: DeviceMesh) -> Place:
    grid = grid_of(share, mesh)
    parts = grid.get_group("part") if grid.ndim > 1 else grid.get_group()
    sharers = grid.get_group("sharing") if share.sharing > 1 else None
    return Place(share, mesh.get_local_rank(), mesh.get_group(), parts, sharers)


class _Placed(TensorParallelLayer):
    """A style that needs its place: found once, as Dynamo can trace no forward pass that makes groups of chips."""

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        place = place_of(self.share(module, mesh), mesh)
        forward = module.forward

        def placed_forward(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.before(place, args, kwargs)
            with self.around(place, module):
                output = forward(*args, **kwargs)
            return self.after(place, module, output)

        module.forward = placed_forward
        return module

    def share(self, module: nn.Module, mesh: DeviceMesh) -> Share:
        return share_of(module, mesh)

    def before(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return args, kwargs

    def around(self, place: Place, module: nn.Module) -> Any:
        return contextlib.nullcontext()

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        return output


class Attention(_Placed):
    """On an attention whose heads are not dealt as transformers supposes: it counts this chip's heads only.

    Comes before its projections, and leaves on each what it must know.
    """

    def __init__(self, style: str) -> None:
        self.style = style

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        share = tell(self.style, module, mesh)
        if share:
            owner = count_own(self.style, module, share)
            names = [*inspect.signature(owner.forward).parameters]
            super().install_forward(owner, mesh)
            _sum_gradients_of_arguments(owner, names, place_of(share, mesh).parts)
        return module

    def before(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return args, own_biases(kwargs, place.share, place.rank // place.share.how.copies)

    def around(self, place: Place, module: nn.Module) -> Any:
        return _use_local_dtensor_params(module)  # bare parameters, such as sinks, have no forward pass to wrap


def _sum_gradients_of_arguments(module: nn.Module, names: list[str], group: Any) -> None:
    """Sum the gradients of what an attention is given for its heads, of which each chip has only some."""
    forward = module.forward

    def summed(name: str, value: Any) -> Any:
        if name not in FOR_HEADS:
            return value
        if isinstance(value, tuple):
            return tuple(summed(name, item) for item in value)
        return sum_gradient(value, group) if isinstance(value, Tensor) else value

    def forward_summing(*args: Any, **kwargs: Any) -> Any:
        known = zip(names, args, strict=False)
        args = (*(summed(name, value) for name, value in known), *args[len(names) :])
        return forward(*args, **{name: summed(name, value) for name, value in kwargs.items()})

    module.forward = forward_summing


def tell(style: str, attention: nn.Module, mesh: DeviceMesh) -> Share | None:
    """Leave on each module within an attention its share, and return the attention's."""
    for module, share in shares_of(style, attention, mesh.size()).items():
        module._accelhub_share = share
    own: Share | None = getattr(attention, "_accelhub_share", None)
    if own:
        attention._accelhub_kv_heads = own.heads.key_value // own.how.key_value
    return own


class _Dealt(_Placed):
    """A part of a projection's weight on each chip, by heads; chips that use the same heads hold the same part."""

    def shard_param(self, module: nn.Module, param: str, mesh: DeviceMesh) -> None:
        whole = module._parameters.get(param)
        if whole is not None:
            grid = grid_of(self.share(module, mesh), mesh)
            placements = (self.placement(module, whole, param), *[Replicate()] * (grid.ndim - 1))
            part = distribute_tensor(whole, grid, placements, src_data_rank=None)
            module._parameters[param] = nn.Parameter(part, requires_grad=whole.requires_grad)

    def placement(self, module: nn.Module, whole: Tensor, param: str) -> Placement:
        raise NotImplementedError

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        if is_transposed(module):  # Conv1D counts on its whole width
            module.forward = partial(_conv1d, module)
        return super().install_forward(module, mesh)

    def around(self, place: Place, module: nn.Module) -> Any:
        return _use_local_dtensor_params(module)


def _conv1d(module: nn.Module, inputs: Tensor) -> Tensor:
    output = inputs @ module.weight
    return output if module.bias is None else output + module.bias


class DealtColwise(_Dealt):
    """As "colwise", for heads that are not dealt evenly, for Conv1D, and for layers of several fused pieces.

    Chips that share KV heads sum the gradient of the projection's output. With it, the gradients of its weight and of
    its input are those of whole KV heads, the same on all of them.
    """

    def __init__(self, pieces: int = 1) -> None:
        self.pieces = pieces

    def placement(self, module: nn.Module, whole: Tensor, param: str) -> Placement:
        dimension = whole.ndim - 1 if is_transposed(module) or whole.ndim == 1 else whole.ndim - 2
        return Shard(dimension) if self.pieces == 1 else _StridedShard(dimension, split_factor=self.pieces)

    def before(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return (sum_gradient(args[0], place.parts), *args[1:]), kwargs

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        return output if place.sharers is None else sum_gradient(output, place.sharers)


class DealtRowwise(_Dealt):
    """As "rowwise", for heads that are not dealt evenly and for Conv1D. The bias is whole, and added once."""

    def share(self, module: nn.Module, mesh: DeviceMesh) -> Share:
        return replace(share_of(module, mesh), key_values=False)

    def placement(self, module: nn.Module, whole: Tensor, param: str) -> Placement:
        if param == "bias":
            return Replicate()
        return Shard(whole.ndim - 2 if is_transposed(module) else whole.ndim - 1)

    @contextlib.contextmanager
    def around(self, place: Place, module: nn.Module) -> Iterator[None]:
        bias = module._parameters.get("bias")
        if bias is not None:
            module._parameters["bias"] = None
        try:
            with _use_local_dtensor_params(module):
                yield
        finally:
            if bias is not None:
                module._parameters["bias"] = bias

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        output = sum_output(output, place.parts)
        bias = module._parameters.get("bias")
        if bias is None:
            return output
        return output + (bias.to_local() if isinstance(bias, DTensor) else bias)


class KeyValueSlice(_Placed):
    """k_proj and v_proj whole on each chip, their output cut to this chip's heads.

    Works where the weights must stay ordinary parameters: under FSDP2, and when they are quantised. Every chip needs
    query heads of its own.
    """

    def share(self, module: nn.Module, mesh: DeviceMesh) -> Share:
        # As of queries: whole weights need no group of chips that share them, and under FSDP2 none can be made.
        return replace(share_of(module, mesh), key_values=False)

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        how = place.share.how
        width = output.shape[-1] // how.key_value
        return sum_gradient(output, place.parts).narrow(-1, place.rank // how.sharing * width, width).contiguous()


class QueryKeyValueSlice(_Placed):
    """A fused projection of all queries, then keys, then values: whole, its output cut to this chip's heads."""

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        part = place.rank // place.share.how.copies
        return own_query_key_values(sum_gradient(output, place.parts), place.share, part)


class PartialGradient(_Placed):
    """Whole on every chip, but works on what one chip has made, as a norm over its heads: gradients are summed."""

    def share(self, module: nn.Module, mesh: DeviceMesh) -> Share:
        return replace(share_of(module, mesh), key_values=False)

    @contextlib.contextmanager
    def around(self, place: Place, module: nn.Module) -> Iterator[None]:
        own = dict(module._parameters)
        module._parameters.update(
            {name: sum_gradient(parameter, place.parts) for name, parameter in own.items() if parameter is not None}
        )
        try:
            yield
        finally:
            module._parameters.update(own)


class OwnOutput(TensorParallelLayer):
    """As another style; the output is a tensor of its own, which the model may change in place."""

    def __init__(self, style: str) -> None:
        self.style = ALL_PARALLEL_STYLES[style]

    def should_use_local_tensors(self, module: nn.Module) -> bool:
        return bool(self.style.should_use_local_tensors(module))

    def validate_param(self, *args: Any, **kwargs: Any) -> None:
        self.style.validate_param(*args, **kwargs)

    def shard_param(self, module: nn.Module, param: str, mesh: DeviceMesh) -> None:
        self.style.shard_param(module, param, mesh)

    def install_forward(self, module: nn.Module, mesh: DeviceMesh) -> None:
        self.style.install_forward(module, mesh)
        forward = module.forward

        def forward_and_copy(*args: Any, **kwargs: Any) -> Tensor:
            return forward(*args, **kwargs).clone()

        module.forward = forward_and_copy


class PartialSum(_Placed):
    """A module that computes with its own split parameters: outputs are summed, and the gradients of its inputs."""

    def before(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        def shared(value: Any) -> Any:
            return sum_gradient(value, place.world) if isinstance(value, Tensor) else value

        return tuple(shared(value) for value in args), {name: shared(value) for name, value in kwargs.items()}

    def around(self, place: Place, module: nn.Module) -> Any:
        return _use_local_dtensor_params(module)

    def after(self, place: Place, module: nn.Module, output: Tensor) -> Tensor:
        return sum_output(output, place.world)
