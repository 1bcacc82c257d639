"""`shard()`: the arguments with which `from_pretrained` loads a model tensor-parallel."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from accelhub.errors import PlanError, UsageError
from accelhub.messages import say_once
from accelhub.parallel.repairs import repair_heads
from accelhub.parallel.styles import provide_replicate
from accelhub.plugins.manager import get_manager
from accelhub.process import current, prepare, world_size
from accelhub.types import PlanRepair


def shard(model: str | Path, tp_size: int | None = None) -> dict[str, Any]:
    """Arguments for `from_pretrained` that shard a causal language model over chips, its plan repaired.

        AutoModelForCausalLM.from_pretrained(path, **accelhub.shard(path))

    Args:
        model: what `from_pretrained` takes: a folder, or a name on the Hub.
        tp_size: over how many chips; the whole world by default.

    Returns:
        `{"distributed_config": ...}`; in a world of one process `{"device_map": ...}`, which shards nothing.

    Raises:
        UsageError: `tp_size` does not fit the world, or the model cannot be read.
        PlanError: transformers has no plan for the architecture.
        DeviceError, PluginError: as `accelhub.device()`.
    """
    world = world_size()
    size = world if tp_size is None else tp_size
    if size < 1 or world % size:
        raise UsageError(
            f"tp_size={size} does not fit a world of {world}: start it with accelhub launch --chips {size}"
        )
    here = prepare(current())
    if size == 1:
        return {"device_map": here.device}

    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"cannot read the configuration of {model}: {reason}") from error
    model_class = AutoModelForCausalLM._model_mapping[type(config)]
    return shard_arguments(model_class, config, size)


def shard_arguments(model_class: Any, config: Any, tp_size: int) -> dict[str, Any]:
    """As `shard()`, for a model class and a configuration that are at hand."""
    from transformers.distributed import DistributedConfig

    provide_replicate()
    repairs = plan_repairs(model_class, config, tp_size)
    for repair in repairs:
        say_once(repair.reason)
    override = {pattern: style for repair in repairs for pattern, style in repair.plan.items()}
    return {"distributed_config": DistributedConfig(tp_size=tp_size, tp_plan=override or None)}


def plan_repairs(model_class: Any, config: Any, tp_size: int) -> list[PlanRepair]:
    """What has to change in the model's own plan: accelhub's repairs, then those of plugins.

    Raises:
        PlanError: there is no plan.
        PluginError: the plugin of this process's platform failed.
    """
    import torch

    with torch.device("meta"):
        model = model_class(copy.deepcopy(config))  # building a model writes to its configuration
    if not model.tp_plan:
        raise PlanError(
            f"{model_class.__name__} has no tensor-parallel plan in transformers, so it cannot be sharded over"
            f' {tp_size} chips; device_map=accelhub.auto("replicate") loads a whole copy on each'
        )
    repairs = repair_heads(model, tp_size)
    for offered in get_manager().fix_tp_plan(current().name, model, tp_size).values():
        repairs.extend(offered)
    return repairs
