"""`compile()`: torch.compile with what the device needs."""

from __future__ import annotations

from typing import Any, TypeVar

from accelhub.errors import UsageError
from accelhub.plugins.manager import get_manager
from accelhub.process import current, prepare
from accelhub.types import CompileSettings

Compiled = TypeVar("Compiled")


def compile(model: Compiled, **options: Any) -> Compiled:  # noqa: A001 - torch's own name for it
    """Compile a module or function for this process's device.

    Args:
        model: what `torch.compile` takes.
        options: handed to `torch.compile`; they win over the device's settings.

    Raises:
        UsageError: `dynamic=True` on a device that compiles static shapes only.
        DeviceError, PluginError: as `accelhub.device()`.
    """
    import torch

    settings = compile_settings()
    if options.get("dynamic") and settings.dynamic is False:
        raise UsageError(
            f"dynamic=True was asked for, but the {settings.backend!r} compiler takes static shapes only;"
            " leave dynamic out and pad lengths to a few fixed sizes"
        )
    defaults = {"backend": settings.backend, "dynamic": settings.dynamic, "mode": settings.mode}
    compiled: Compiled = torch.compile(model, **{**defaults, **options})
    return compiled


def compile_settings() -> CompileSettings:
    """How this process's device wants to be compiled for: backend, static shapes, padding, dtypes it lacks."""
    sighting = current()
    return get_manager().compile_settings(sighting.name, prepare(sighting).device)
