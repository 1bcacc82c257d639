"""Questions put to a meta model by trying: what its forward pass does, how it initialises, how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from accelhub.parallel.names import REPLICATE, style_of
from accelhub.parallel.rehearsal import rehearse


@dataclass(frozen=True)
class Seen:
    """What a model's forward pass does with the outputs of its modules; empty if it cannot be rehearsed.

    Attributes:
        changed: modules whose output is changed in place.
        fed: module with parameters of its own -> modules whose output, or a view of it, it is given.
    """

    changed: set[str] = field(default_factory=set)
    fed: dict[str, set[str]] = field(default_factory=dict)


def look(model: Any) -> Seen:
    """Watch the forward pass of a meta model."""
    import torch

    seen = Seen()
    makers: dict[int, set[str]] = {}
    kept: list[Any] = []

    def made_by(tensor: Any) -> set[str]:
        return makers.get(tensor.untyped_storage()._cdata, set()) if isinstance(tensor, torch.Tensor) else set()

    def operation(function: Any, args: Any) -> None:
        if function._schema.is_mutable and args:
            seen.changed.update(made_by(args[0]))

    def hooks_for(name: str, parameters: bool) -> tuple[Any, Any]:
        def before(_module: Any, args: Any) -> None:
            if parameters and args and (given := made_by(args[0])):
                seen.fed.setdefault(name, set()).update(given)

        def after(_module: Any, _args: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                makers.setdefault(output.untyped_storage()._cdata, set()).add(name)
                kept.append(output)  # so that no later tensor gets its address

        return before, after

    hooks = []
    for name, module in model.named_modules():
        before, after = hooks_for(name, next(module.parameters(recurse=False), None) is not None)
        hooks += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        rehearse(model, operation)
    except Exception:  # noqa: BLE001 - whatever a model needs that the meta device lacks
        return Seen()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def refuses(style: str, module: Any, tp_size: int) -> str:
    """Why transformers' own style does not take a module's weight over so many chips; "" if it does."""
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    try:
        ALL_PARALLEL_STYLES[style].validate_param(module, "weight", SimpleNamespace(size=lambda: tp_size))
    except ValueError as error:
        return str(error)
    return ""


def forgets_loaded_rows(model: Any, embedding: Any) -> bool:
    """Whether the model's initialisation writes to an embedding that is marked as loaded."""
    import torch

    if embedding.padding_idx is None:
        return False
    probe = torch.nn.Embedding(2, 1, padding_idx=0)
    with torch.no_grad():
        probe.weight.fill_(1)
    probe.weight._is_hf_initialized = True
    from transformers import initialization

    with initialization.guard_torch_init_functions():
        model._init_weights(probe)
    return bool(probe.weight[0] != 1)


def fused_targets(model: Any, plan: Mapping[str, str]) -> list[str]:
    """Patterns of split parameters whose rows lie in a checkpoint together with others, or interleaved.

    transformers would split what is stored, and only then take it apart or put it in order.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import Chunk, Interleave, Split, WeightConverter

    split = {name for name, _ in model.named_parameters() if style_of(name, plan) not in (None, REPLICATE)}
    found = []
    for converter in get_model_conversion_mapping(model):
        if not isinstance(converter, WeightConverter):
            continue
        apart = len(converter.target_patterns) > 1 and _any(converter.operations, Chunk | Split)
        if apart or _any(converter.operations, Interleave):
            found += [end for end in converter.target_patterns if any(end in name for name in split)]
    return found


def _any(operations: Iterable[Any], kinds: Any) -> bool:
    return any(isinstance(operation, kinds) for operation in operations)
