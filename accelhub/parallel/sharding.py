"""`shard()`: the arguments with which `from_pretrained` loads a model tensor-parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from accelhub.errors import UsageError
from accelhub.messages import say_once
from accelhub.parallel.caches import count_own_kv_heads
from accelhub.parallel.diffusion import diffusion_arguments, is_diffusion
from accelhub.parallel.loading import read_fused_tensors_whole
from accelhub.parallel.planner import Plan, make_plan
from accelhub.process import current, prepare, world_size

MOSTLY_WHOLE: Final = 0.75
"""A chip that holds more than this of the parameters is worth a word."""


def shard(model: Any, tp_size: int | None = None, fsdp_size: int | None = None) -> dict[str, Any]:
    """Arguments for `from_pretrained` that shard a model over chips, its plan repaired or derived.

        AutoModelForCausalLM.from_pretrained(path, **accelhub.shard(path))
        DiffusionPipeline.from_pretrained(path, **accelhub.shard(path))
        pipeline.transformer.enable_parallelism(**accelhub.shard(pipeline))

    Args:
        model: what `from_pretrained` takes: a folder, or a name on the Hub. Of diffusers a folder, or the model or
            pipeline itself.
        tp_size: over how many chips each tensor is split; by default what `fsdp_size` leaves of the world.
        fsdp_size: over how many such groups the parameters are also dealt out by FSDP2; 1 by default. Not for
            diffusers.

    Returns:
        For transformers `{"distributed_config": ...}`; in a world of one process `{"device_map": ...}`, which shards
        nothing. For diffusers: see `accelhub.parallel.diffusion.diffusion_arguments`.

    Raises:
        UsageError: the sizes do not fit the world, or the model cannot be read.
        PlanError: there is no plan for the architecture, and none can be derived; or diffusers cannot shard it so.
        DeviceError, PluginError: as `accelhub.device()`.
    """
    tp, fsdp = _sizes(tp_size, fsdp_size, world_size())
    here = prepare(current())
    if is_diffusion(model):
        if fsdp > 1:
            raise UsageError(f"fsdp_size={fsdp}: diffusers shards by tensor parallelism only; leave out fsdp_size")
        return diffusion_arguments(model, tp)
    if tp == fsdp == 1:
        return {"device_map": here.device}
    return shard_arguments(*describe(model), tp, fsdp)


def plan(model: str | Path, tp_size: int, fsdp_size: int = 1) -> Plan:
    """The plan by which `shard()` would shard a model over so many chips; needs neither chips nor weights.

    Raises:
        UsageError: the size is none, or the model's configuration cannot be read.
        PlanError: as `shard()`.
    """
    tp, fsdp = _sizes(tp_size, fsdp_size, tp_size * fsdp_size)
    return make_plan(*describe(model), tp, fsdp)


def describe(model: str | Path) -> tuple[Any, Any]:
    """The class and the configuration of a causal language model.

    Raises:
        UsageError: no configuration can be read there, or transformers knows no such causal language model.
    """
    folder = Path(model)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UsageError(f"cannot read the configuration of {model}: there is no config.json in this folder")
    if not folder.exists() and str(model).startswith(("/", ".", "~")):
        raise UsageError(f"cannot read the configuration of {model}: there is no such folder")

    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"cannot read the configuration of {model}: {reason}") from error
    try:
        model_class = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise UsageError(f"{model} is a {config.model_type!r}, which is no causal language model") from None
    # Of a model that also sees or hears, AutoModelForCausalLM takes the part that writes.
    text = config.sub_configs.get("text_config")
    return model_class, config.get_text_config() if text and model_class.config_class is text else config


def shard_arguments(model_class: Any, config: Any, tp_size: int, fsdp_size: int = 1) -> dict[str, Any]:
    """As `shard()`, for a model class and a configuration that are at hand."""
    from transformers.distributed import DistributedConfig

    made = make_plan(model_class, config, tp_size, fsdp_size, current().name)
    for line in explain(made):
        say_once(line)
    count_own_kv_heads()
    if made.reads_fused_tensors:
        read_fused_tensors_whole()
    return {
        "distributed_config": DistributedConfig(
            tp_size=tp_size, fsdp_size=fsdp_size, ep_size=made.ep_size, tp_plan=made.override or None
        )
    }


def explain(made: Plan) -> list[str]:
    """What the user should know of a plan, a line each."""
    lines = [repair.reason for repair in made.repairs]
    if made.derived and made.tp_size > 1:
        lines.insert(0, f"transformers has no plan for the layers of {made.architecture}: one was derived and proved")
    lines += [f"{block} stays whole on every chip: {reason}" for block, reason in made.whole.items()]
    if made.ep_size > 1:
        lines.append(f"whole experts are dealt out over {made.ep_size} chips")
    if made.tp_size > 1 and made.held > MOSTLY_WHOLE:
        lines.append(f"{made.held:.0%} of the parameters are whole on each of {made.tp_size} chips")
    return lines


def _sizes(tp_size: int | None, fsdp_size: int | None, world: int) -> tuple[int, int]:
    fsdp = 1 if fsdp_size is None else fsdp_size
    tp = max(1, world // max(1, fsdp)) if tp_size is None else tp_size
    if tp < 1 or fsdp < 1:
        raise UsageError(f"tp_size={tp} and fsdp_size={fsdp}: both must be 1 or more")
    if tp * fsdp != world:
        raise UsageError(
            f"tp_size={tp} x fsdp_size={fsdp} does not fit a world of {world}: start it with accelhub launch"
            f" --chips {tp * fsdp}"
        )
    return tp, fsdp
