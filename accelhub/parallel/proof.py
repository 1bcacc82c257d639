"""Proves a plan for one layer, by computing the layer whole and in parts and comparing.

Each part is a thread with its own cut of the layer's weights; where a row-wise projection ends, the threads meet and
sum. Weights and inputs are random and the layer is the model's own: the plan and its arithmetic are on trial, without
a process group and before any weight is loaded.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from accelhub.errors import PlanError
from accelhub.parallel.attention import Share, count_own, own_biases, own_query_key_values, shares_of
from accelhub.parallel.cuts import cut, is_transposed
from accelhub.parallel.heads import Deal, Heads
from accelhub.parallel.names import ATTENTIONS, HEAD_NORM, Style

TOLERANCE: Final = 1e-4
"""Of the largest output. Sums in another order differ by about 1e-6 in float32; a wrong plan by about 1."""


@dataclass(frozen=True)
class Call:
    """A layer's arguments, as they were seen on the meta device."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Meeting:
    """Where the parts of a layer sum what each has computed."""

    def __init__(self, parts: int) -> None:
        self._barrier = threading.Barrier(parts)
        self._brought: list[Any] = [None] * parts

    def total(self, part: int, value: Any) -> Any:
        self._brought[part] = value
        self._barrier.wait()
        total = sum(self._brought[1:], self._brought[0])
        self._barrier.wait()
        return total

    def run(self, compute: Callable[[int], Any]) -> list[Any]:
        """The results of all parts. When one raises, the others do not wait for it, and its error is raised."""
        errors: list[Exception] = []

        def attend(part: int) -> Any:
            try:
                return compute(part)
            except threading.BrokenBarrierError:
                return None
            except Exception as error:  # noqa: BLE001 - raised below, once all have left
                errors.append(error)
                self._barrier.abort()

        with ThreadPoolExecutor(self._barrier.parties) as pool:
            results = list(pool.map(attend, range(self._barrier.parties)))
        if errors:
            raise errors[0]
        return results


def refutation(layer: Any, call: Call, styles: Mapping[str, str], tp_size: int, plain_weights: bool = False) -> str:
    """What speaks against splitting a layer by these styles; "" if its parts sum to the whole.

    Args:
        layer: on the meta device.
        call: how the model calls it.
        styles: name within the layer -> style; at most one attention.
        tp_size: over how many chips.
        plain_weights: as in `rules.Request`.
    """
    import torch

    whole = _filled(layer)
    args, kwargs = _random(call.args), _random(dict(call.kwargs))
    shares: dict[str, Share] = {}
    for name, style in styles.items():
        if style in ATTENTIONS:
            told = shares_of(style, whole.get_submodule(name), tp_size)
            shares = {inner: told[module] for inner, module in whole.named_modules() if module in told}
    how = next(iter(shares.values())).how if shares else Deal(tp_size, tp_size, tp_size)
    parts = how.query
    if parts == 1:
        return f"its heads cannot be dealt out over {tp_size} chips"
    if plain_weights and {Style.COLWISE_HALVES, Style.COLWISE_THIRDS} & {*styles.values()}:
        return "FSDP2 and quantisation cannot split its fused pieces once more"
    if plain_weights and not (how.even or (Style.QKV_SLICE in styles.values() and how.copies == 1)):
        return f"its heads do not divide over {tp_size} chips, and FSDP2 and quantisation need weights that are whole"
    meeting = Meeting(parts)

    def compute(part: int) -> Any:
        with torch.no_grad():
            own = copy.deepcopy(whole, {id(parameter): parameter for parameter in whole.parameters()})
            for name, style in styles.items():
                _split(own, name, style, shares, parts, part, meeting)
            return _tensor(own(*copy.deepcopy(args), **copy.deepcopy(kwargs)))

    try:
        with torch.no_grad():
            expected = _tensor(whole(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
        found = meeting.run(compute)
    except Exception as error:
        # All chips must come to the same plan, so what may happen on one only is no reason.
        if isinstance(error, MemoryError) or "allocate" in str(error):
            raise PlanError(f"not enough memory to prove a plan for {type(layer).__name__}: {error}") from error
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
    worst = max(float((result - expected).abs().max() / expected.abs().max()) for result in found)
    return "" if worst <= TOLERANCE else f"its parts do not sum to the whole but differ by {worst:.1g} of it"


def _split(
    layer: Any, name: str, style: str, shares: Mapping[str, Share], parts: int, part: int, meeting: Meeting
) -> None:
    """Make one module of a layer what it would be on one chip."""
    from torch.nn.functional import linear

    owner_name, _, own_name = name.rpartition(".")
    if own_name in (parameters := layer.get_submodule(owner_name)._parameters):
        own = cut(parameters[own_name], own_name, style, parts, part)
        parameters[own_name] = type(parameters[own_name])(own, requires_grad=False)
        return
    module = layer.get_submodule(name)
    if style in ATTENTIONS:
        share = shares[name]
        owner = count_own(style, module, share)
        forward = owner.forward
        owner.forward = lambda *args, **kwargs: forward(*args, **own_biases(kwargs, share, part))
        return
    if style == HEAD_NORM or style == Style.PARTIAL_GRADIENT:
        return
    share = shares.get(name) or Share(Heads(parts, parts), Deal(parts, parts, parts))
    rows = style in (Style.ROWWISE, "rowwise")
    splits = share.how.query if rows else share.splits
    mine, transposed = part * splits // parts, is_transposed(module)
    weight = cut(module.weight, "weight", style, splits, mine, transposed)
    weight = weight.t() if transposed else weight
    bias = None if module.bias is None else cut(module.bias, "bias", style, splits, mine, transposed)

    def forward_rows(inputs: Any) -> Any:
        total = meeting.total(part, linear(inputs, weight))
        return total if bias is None else total + bias

    def forward_columns(inputs: Any) -> Any:
        output = linear(inputs, weight, bias)
        return own_query_key_values(output, share, part) if style == Style.QKV_SLICE else output

    module.forward = forward_rows if rows else forward_columns


def _filled(layer: Any) -> Any:
    """A copy of a meta layer on the CPU, in float32, with random weights."""
    import torch

    filled = copy.deepcopy(layer).to_empty(device="cpu").float().eval()
    generator = torch.Generator().manual_seed(0)
    for tensor in [*filled.parameters(), *filled.buffers()]:
        if tensor.is_floating_point():
            scale = tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else 1.0
            tensor.data = torch.randn(tensor.shape, generator=generator) * scale
        else:
            tensor.data = torch.ones_like(tensor)
    return filled


def _random(value: Any) -> Any:
    """The value with its meta tensors filled: random numbers, positions, masks that hide nothing."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return torch.ones(value.shape, dtype=torch.bool)
        if not value.is_floating_point():
            return torch.arange(value.numel()).reshape(value.shape) % max(value.shape[-1:] or (1,))
        return torch.randn(value.shape, generator=torch.Generator().manual_seed(value.ndim))
    if isinstance(value, tuple | list):
        return type(value)(_random(item) for item in value)
    if isinstance(value, dict):
        return {key: _random(item) for key, item in value.items()}
    return value


def _tensor(output: Any) -> Any:
    return output if hasattr(output, "abs") else _tensor(output[0])
