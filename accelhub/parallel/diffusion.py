"""Tensor parallelism of diffusers: what `shard()` gives for one of its models, and for a pipeline that holds some.

diffusers shards by the plan in a model's class, `_tp_plan`. It is asked to by `parallel_config` of a model's
`from_pretrained`, or `config` of `enable_parallelism`. A pipeline's `from_pretrained` drops `parallel_config` with a
warning and loads every model whole, but it takes models that are loaded already.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any, Final

from accelhub.errors import PlanError, UsageError
from accelhub.messages import say_once
from accelhub.process import current, prepare

PIPELINE: Final = "model_index.json"
MODEL: Final = "config.json"
REPLICATE: Final = (
    'a whole copy on each chip is what device_map=accelhub.auto("replicate") loads for a model, and'
    " .to(accelhub.device()) makes of a pipeline"
)


def is_diffusion(model: Any) -> bool:
    """Whether it is a model or a pipeline of diffusers, or a folder with one. Imports neither torch nor diffusers.

    A name on the Hub is no folder, so it is neither.

    Raises:
        UsageError: the folder's JSON cannot be read.
    """
    if isinstance(model, (str, Path)):
        return bool(_read(Path(model) / PIPELINE)) or "_class_name" in _read(Path(model) / MODEL)
    return any(base.__module__.partition(".")[0] == "diffusers" for base in type(model).__mro__)


def diffusion_arguments(model: Any, tp_size: int) -> dict[str, Any]:
    """The arguments that shard a diffusion model over all `tp_size` processes of the world.

    Args:
        model: what `is_diffusion` is true for.

    Returns:
        For a model's folder those of its `from_pretrained`. For a pipeline's folder those of the pipeline's: its models
        that diffusers can shard, loaded here, each process with its part, in the data type that they are saved in. The
        rest of the pipeline is loaded whole, on the CPU; `.to(accelhub.device())` moves it. For a model or a pipeline
        that is loaded, those of a model's `enable_parallelism`; what that leaves whole, `.to(accelhub.device())` moves.

    Raises:
        PlanError: diffusers cannot shard any of it, or not over so many chips. No weights have been loaded.
        UsageError: no diffusers that shards is installed, or it lacks the class; or a loaded model in a world of one.
    """
    _require_diffusers()
    if isinstance(model, (str, Path)):
        folder = Path(model)
        return _for_pipeline(folder, tp_size) if (folder / PIPELINE).is_file() else _for_model(folder, tp_size)
    name = type(model).__name__
    if tp_size == 1:
        raise UsageError(
            f"there is nothing to shard a loaded {name} over in a world of one: leave out enable_parallelism, or start"
            " the script with accelhub launch --chips 2"
        )
    for part, found in _with_plan(name, getattr(model, "components", {name: model})).items():
        _require_degree(part, found, tp_size)
    return {"config": _parallel_config(tp_size)}


def _for_model(folder: Path, tp_size: int) -> dict[str, Any]:
    if tp_size == 1:
        return {"device_map": prepare(current()).device}
    name = _read(folder / MODEL)["_class_name"]
    model_class = _with_plan(name, {name: _class(name, folder)})[name]
    _require_degree(name, _meta_model(model_class, folder), tp_size)
    return {"parallel_config": _parallel_config(tp_size)}


def _for_pipeline(folder: Path, tp_size: int) -> dict[str, Any]:
    if tp_size == 1:
        return {}
    index = _read(folder / PIPELINE)
    # An entry is (library, class), (null, null) for a part that was left out, or a setting of the pipeline.
    named = {part: entry[1] for part, entry in index.items() if isinstance(entry, list) and entry[0] == "diffusers"}
    sharded = _with_plan(index["_class_name"], {part: _class(name, folder) for part, name in named.items()})
    for part, model_class in sharded.items():
        _require_degree(part, _meta_model(model_class, folder / part), tp_size)
    say_once(
        f"{index['_class_name']}: {' and '.join(sharded)} is sharded over {tp_size} chips; the rest is loaded whole"
    )
    config = _parallel_config(tp_size)
    return {
        part: model_class.from_pretrained(folder / part, parallel_config=config)
        for part, model_class in sharded.items()
    }


def _read(file: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing if there is none, or it is no object."""
    try:
        content = json.loads(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    return content if isinstance(content, dict) else {}


def _require_diffusers() -> None:
    try:
        from diffusers import TensorParallelConfig  # noqa: F401
    except ImportError as error:
        raise UsageError(f"sharding a diffusion model needs pip install 'diffusers>=0.41': {error}") from error


def _class(name: str, folder: Path) -> Any:
    import diffusers

    found = getattr(diffusers, name, None)
    if found is None:
        raise UsageError(f"{folder} holds a {name}, which diffusers {diffusers.__version__} does not have")
    return found


def _with_plan(owner: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Those of a pipeline's parts, classes or objects, that diffusers has a plan for.

    Raises:
        PlanError: there are none.
    """
    found = {name: part for name, part in parts.items() if getattr(part, "_tp_plan", None)}
    if not found:
        from diffusers.models import transformers

        known = [name for name in dir(transformers) if getattr(getattr(transformers, name), "_tp_plan", None)]
        raise PlanError(
            f"diffusers has no tensor-parallel plan for {owner}, so it cannot be sharded; it has one for"
            f" {', '.join(known)}; {REPLICATE}"
        )
    return found


def _meta_model(model_class: Any, folder: Path) -> Any:
    import torch

    with torch.device("meta"):
        return model_class.from_config(model_class.load_config(folder))


def _require_degree(name: str, model: Any, tp_size: int) -> None:
    legal = legal_degrees(model)
    if tp_size not in legal:
        shown = type(model).__name__ if name == type(model).__name__ else f"{name} ({type(model).__name__})"
        raise PlanError(
            f"{shown} cannot be sharded over {tp_size} chips: their number must divide its"
            f" {model.config.num_attention_heads} attention heads and every tensor that is split, as"
            f" {', '.join(map(str, legal))} do; {REPLICATE}"
        )


def legal_degrees(model: Any) -> list[int]:
    """Over how many chips diffusers can shard a model, ascending. Reads only shapes: the meta device will do."""
    from diffusers.hooks.tensor_parallel import resolve_tp_shard_specs

    specs = resolve_tp_shard_specs(model, model._tp_plan, 1)
    sizes = [size for spec in specs.values() for size in spec.block_sizes or ()]
    common = math.gcd(model.config.num_attention_heads, *sizes)
    return [degree for degree in range(1, common + 1) if common % degree == 0]


def _parallel_config(tp_size: int) -> Any:
    """diffusers' configuration, with a mesh over the world. Makes the process group if there is none."""
    import torch
    from diffusers import TensorParallelConfig
    from torch.distributed.device_mesh import init_device_mesh

    kind = torch.device(prepare(current()).device).type
    if kind == "cpu":
        _shard_on_the_cpu()
    return TensorParallelConfig(mesh=init_device_mesh(kind, (tp_size,), mesh_dim_names=("tp",)))


@functools.cache
def _shard_on_the_cpu() -> None:
    """Mend, once, that diffusers shards on accelerators only.

    It takes the device from torch's accelerator, even where the mesh is on the CPU: there is none, and it divides by
    their number. Configurations with a mesh on the CPU are set up here; all others are left to diffusers.
    """
    import torch
    from diffusers import ModelMixin, ParallelConfig
    from diffusers.hooks import tensor_parallel

    if "cpu" in tensor_parallel._SUPPORTED_TP_DEVICES:  # a release without the defect
        return
    tensor_parallel._SUPPORTED_TP_DEVICES = (*tensor_parallel._SUPPORTED_TP_DEVICES, "cpu")
    original = ModelMixin._resolve_parallel_config

    @functools.wraps(original)
    def resolve(self: Any, config: Any) -> Any:
        mesh = getattr(config, "mesh", None)
        if mesh is None or mesh.device_type != "cpu":
            return original(self, config)
        self._parallel_config = ParallelConfig(tensor_parallel_config=config)
        self._parallel_config.setup(mesh.get_rank(), mesh.size(), torch.device("cpu"), mesh=mesh)
        return self._parallel_config

    ModelMixin._resolve_parallel_config = resolve
