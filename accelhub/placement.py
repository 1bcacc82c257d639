"""Where tensors and models go: `device()`, `devices()`, `auto()`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from accelhub.errors import UsageError
from accelhub.parallel.bridge import sharded_device_map
from accelhub.platforms import report, survey
from accelhub.plugins.manager import Manager, get_manager
from accelhub.process import current, prepare, world_size
from accelhub.types import Devices, Platform

if TYPE_CHECKING:
    import torch


def devices(root: str | Path = "/", environ: Mapping[str, str] | None = None) -> Devices:
    """What accelerators are here. Imports no torch and touches no device.

    Args:
        root: the filesystem to read, "/" or a copy of another machine's.
        environ: the environment to read, this process's by default.

    Raises:
        UsageError: `ACCELHUB_EMULATE`, `ACCELHUB_PLUGINS` or `root` names what does not exist.
    """
    root = Path(root)
    if not root.is_dir():
        raise UsageError(f"cannot read {root}: it is no folder; give the root of a filesystem or of a copy of one")
    manager = get_manager() if environ is None else Manager(environ)
    environ = os.environ if environ is None else environ
    return report(survey(manager, root, environ), environ)


def device(name: str | None = None) -> torch.device:
    """The device of this process: its chip under `accelhub launch`, else the best accelerator of the machine.

    Args:
        name: a platform ("cpu", "cuda") or a device of it ("cuda:1"), to have that one. Without it `ACCELHUB_DEVICE`
            decides, then what `ACCELHUB_EMULATE` emulates, then what is there.

    Returns:
        A device that is ready for use. Never silently the CPU: it is returned where it was asked for, or where no
        accelerator exists, and then this is said once.

    Raises:
        UsageError: no plugin knows the platform, or it has no such device.
        DeviceError: the platform is absent or cannot be used; the message says why and what mends it.
        PluginError: the platform's plugin is broken.
    """
    sighting = current(name)
    prepared = prepare(sighting)

    import torch

    asked = name or os.environ.get("ACCELHUB_DEVICE", "")
    _, _, index = asked.partition(":")
    if not index:
        return torch.device(prepared.device)
    if not index.isdigit() or int(index) >= sighting.shown.devices:
        raise UsageError(f"no device {asked!r}: {sighting.name} has {sighting.shown.devices} here, counted from 0")
    return torch.device(asked)


def platform() -> Platform:
    """What this process runs on; as a string, its kind, its chips and, if emulated, the label that says so.

    Raises:
        DeviceError, PluginError: as `device()`.
    """
    return current().shown


def auto(mode: Literal["shard", "replicate"] = "shard") -> str:
    """The `device_map` for `from_pretrained`.

    In one process it names this process's device. In a world of several chips (`accelhub launch --chips N`) the model
    is loaded tensor-parallel over the world, with the plan repaired where it would fail: see `accelhub.shard`. Only
    models of transformers are sharded; any other library takes the answer for this process's device.

    Args:
        mode: "replicate" puts a whole copy of the model on each chip instead.

    Raises:
        UsageError: another mode, or a transformers release that accelhub does not know.
        DeviceError, PluginError: as `device()`.
    """
    if mode not in ("shard", "replicate"):
        raise UsageError(f"auto({mode!r}): the mode is 'shard' or 'replicate'")
    here = device()
    if world_size() > 1:
        if mode == "replicate":
            return str(here)
        return sharded_device_map(str(here))
    return prepare(current()).device_map or str(here)
