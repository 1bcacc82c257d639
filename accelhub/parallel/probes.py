"""Questions put to a meta model by trying: what its forward pass does, how it initialises, how it is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from accelhub.parallel.names import REPLICATE, style_of
from accelhub.parallel.rehearsal import rehearse


def changed_in_place(model: Any, modules: Collection[str]) -> set[str]:
    """Those of the modules whose output the model changes in place in its forward pass.

    A model whose forward pass cannot be rehearsed tells nothing; PyTorch refuses such a change of a split module's
    output in training, so it cannot go unnoticed.
    """
    import torch

    outputs: dict[int, str] = {}
    kept: list[Any] = []
    changed: set[str] = set()

    def watch(function: Any, args: Any) -> None:
        if function._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            owner = outputs.get(args[0].untyped_storage()._cdata)
            changed.update({owner} if owner else ())

    def remember(name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            outputs[output.untyped_storage()._cdata] = name
            kept.append(output)  # so that no later tensor gets its address

        return hook

    hooks = [model.get_submodule(name).register_forward_hook(remember(name)) for name in modules]
    try:
        rehearse(model, watch)
    except Exception:  # noqa: BLE001 - whatever a model needs that the meta device lacks
        return set()
    finally:
        for hook in hooks:
            hook.remove()
    return changed


def fed_by(model: Any, modules: Collection[str]) -> set[str]:
    """Modules with parameters of their own that are given the output of one of `modules`, or a view of it.

    A model whose forward pass cannot be rehearsed tells nothing.
    """
    outputs: dict[int, Any] = {}
    fed: set[str] = set()

    def remember(_module: Any, _args: Any, output: Any) -> None:
        outputs[output.untyped_storage()._cdata] = output

    def look(name: str) -> Any:
        def hook(_module: Any, args: Any) -> None:
            if args and hasattr(args[0], "untyped_storage") and args[0].untyped_storage()._cdata in outputs:
                fed.add(name)

        return hook

    hooks = [model.get_submodule(name).register_forward_hook(remember) for name in modules]
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            hooks.append(module.register_forward_pre_hook(look(name)))
    try:
        rehearse(model)
    except Exception:  # noqa: BLE001 - whatever a model needs that the meta device lacks
        return set()
    finally:
        for hook in hooks:
            hook.remove()
    return fed


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
    """Patterns of split parameters that lie in one tensor of the checkpoint, which transformers would split first."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import Chunk, Split, WeightConverter

    split = {name for name, _ in model.named_parameters() if style_of(name, plan) not in (None, REPLICATE)}
    found = []
    for converter in get_model_conversion_mapping(model):
        if not isinstance(converter, WeightConverter) or len(converter.target_patterns) < 2:
            continue
        if any(isinstance(operation, Chunk | Split) for operation in converter.operations):
            found += [end for end in converter.target_patterns if any(end in name for name in split)]
    return found
