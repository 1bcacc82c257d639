"""This process: its place in the world, and making it ready for a device."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from accelhub.errors import DeviceError, UsageError
from accelhub.messages import say_once
from accelhub.platforms import HOST, Sighting, choose, survey
from accelhub.plugins.manager import get_manager
from accelhub.types import Prepared, Process


def rank() -> int:
    """This process's rank in the world, 0 without a launcher. Needs no process group."""
    return _number(os.environ, "RANK", 0)


def world_size() -> int:
    """How many processes run the script, 1 without a launcher. Needs no process group."""
    return _number(os.environ, "WORLD_SIZE", 1)


@cache
def sightings() -> tuple[Sighting, ...]:
    """The survey of this host, made once in a process."""
    return survey(get_manager(), Path("/"), os.environ)


def current(wanted: str | None = None) -> Sighting:
    """The platform that this process uses: `wanted`, else as `accelhub.platforms.choose` says.

    Says once when it is the CPU and nobody asked for that.

    Raises:
        UsageError, DeviceError, PluginError: as `choose`.
    """
    sighting = choose(sightings(), wanted, os.environ)
    if not (wanted or os.environ.get("ACCELHUB_DEVICE")) and sighting.name == HOST:
        reasons = "; ".join(f"{other.name}: {other.shown.reason}" for other in sightings() if other is not sighting)
        say_once(f"no accelerator here, using {sighting.name} ({reasons})")
    return sighting


@cache
def prepare(sighting: Sighting) -> Prepared:
    """Make this process ready for a platform, once.

    Raises:
        DeviceError: torch is missing, or importing it would abort the process.
        PluginError: the platform's plugin failed.
    """
    require_torch(os.environ)
    process = Process(
        rank=rank(),
        world_size=world_size(),
        local_rank=_number(os.environ, "LOCAL_RANK", 0),
        local_world_size=_number(os.environ, "LOCAL_WORLD_SIZE", 1),
        emulation=sighting.emulation,
    )
    prepared = get_manager().prepare_process(sighting.name, process)
    for note in prepared.notes:
        say_once(note)
    return prepared


def require_torch(environ: Mapping[str, str]) -> None:
    """Check, before torch is imported, that it can be.

    PyTorch has one slot for a device that it does not ship. Two packages that both fill it make `import torch` abort
    the process, which no `except` catches.

    Raises:
        DeviceError: torch is not installed, or two packages claim the slot.
    """
    if "torch" in sys.modules:
        return
    if importlib.util.find_spec("torch") is None:
        raise DeviceError("torch is not installed; pip install 'accelhub[transformers]'")
    claims = {entry.dist.name: entry.dist.version for entry in entry_points(group="torch.backends") if entry.dist}
    if len(claims) > 1 and environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
        found = " and ".join(f"{name} {version}" for name, version in sorted(claims.items()))
        raise DeviceError(
            f"{found} are both installed and claim PyTorch's one slot for an extra device: importing torch would abort"
            f" this process; keep one per environment: pip uninstall {sorted(claims)[0]} (or the other)"
        )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdigit():
        raise UsageError(f"{name}={value!r} is not a whole number; unset it or start the script with accelhub launch")
    return int(value)
