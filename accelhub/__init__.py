"""One PyTorch script on TPU, Trainium, CUDA and CPU.

    import accelhub
    accelhub.device()                                                     # this process's accelerator
    AutoModelForCausalLM.from_pretrained(path, device_map=accelhub.auto())  # on it, or sharded over all of them
    accelhub.compile(model)                                               # with what the device's compiler needs

Start it with `accelhub launch --chips 4 script.py`; try it without the hardware with `--emulate`.
Importing accelhub imports neither torch nor a vendor's package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelhub.compiling import compile, compile_settings  # noqa: A004
    from accelhub.parallel import shard
    from accelhub.placement import auto, device, devices, platform
    from accelhub.process import rank, world_size

_HOMES = {
    "auto": "accelhub.placement",
    "compile": "accelhub.compiling",
    "compile_settings": "accelhub.compiling",
    "device": "accelhub.placement",
    "devices": "accelhub.placement",
    "platform": "accelhub.placement",
    "rank": "accelhub.process",
    "shard": "accelhub.parallel",
    "world_size": "accelhub.process",
}

__all__ = ["auto", "compile", "compile_settings", "device", "devices", "platform", "rank", "shard", "world_size"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'accelhub' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
