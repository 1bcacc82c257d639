"""The hooks of accelhub, all of them. docs/hooks.md explains each with an example; a test keeps the two alike.

Hooks of a platform are called on that platform's plugin alone and return one value. The last three are called on
every plugin. An `AccelhubError` raised inside a hook reaches the user as it is; any other exception is wrapped in a
`PluginError` that names the plugin and the hook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pluggy

from accelhub.plugins import NAME
from accelhub.types import (
    Absent,
    CompileSettings,
    Emulation,
    Finding,
    Found,
    KernelOffer,
    LaunchSpec,
    PlanRepair,
    Prepared,
    Process,
    Variable,
)

hookspec: Final = pluggy.HookspecMarker(NAME)

# ---------------------------------------------------------------------------------------------------------------------
# Of one platform
# ---------------------------------------------------------------------------------------------------------------------


@hookspec(firstresult=True)
def accelhub_discover(root: Path, environ: Mapping[str, str]) -> Found | Absent | None:
    """Look for the platform's chips, from files and package metadata only.

    Must not import torch or a vendor package, touch a device or start a program, and should answer within 50 ms.

    Args:
        root: the root of the filesystem to read, "/" or a copy of somebody else's.
        environ: the environment to read.

    Returns:
        What was found. None (or no implementation) says that the plugin stands for no platform.
    """


@hookspec(firstresult=True)
def accelhub_check_chips(found: Found, count: int) -> str:
    """Say whether a launch on `count` of the chips is possible.

    Args:
        found: the chips that are there.
        count: how many are asked for, at least 1.

    Returns:
        "" if it is, else one sentence that says which counts are. Without an implementation every count up to
        `found.chips` is possible.
    """


@hookspec(firstresult=True)
def accelhub_launch_env(spec: LaunchSpec, environ: Mapping[str, str]) -> Sequence[Variable]:
    """Environment variables that the parent sets before any worker starts.

    accelhub never lets one of them replace a variable that the user set. May start a child process; must not import
    torch into this one.

    Args:
        spec: what is launched.
        environ: the environment that the workers would inherit.
    """


@hookspec(firstresult=True)
def accelhub_prepare_process(process: Process) -> Prepared:
    """Make this process ready, before torch touches the device: registration, emulation, Dynamo settings.

    Called once in a process, when it first asks for a device; with `accelhub launch`, before the script's first line.
    May import torch.
    """


@hookspec(firstresult=True)
def accelhub_compile_settings(device: str) -> CompileSettings:
    """How `torch.compile` is to be called for `device`, this platform's device as PyTorch spells it."""


@hookspec(firstresult=True)
def accelhub_emulator(target: str | None) -> Emulation:
    """Say how the platform is emulated on a machine without its chips. Nothing starts yet.

    Args:
        target: what to emulate, as in `--emulate PLATFORM:TARGET`; None for the plugin's own choice.

    Raises:
        UsageError: `target` names nothing that can be emulated; the message lists what can.
    """


# ---------------------------------------------------------------------------------------------------------------------
# Of every plugin
# ---------------------------------------------------------------------------------------------------------------------


@hookspec
def accelhub_kernels() -> Sequence[KernelOffer]:
    """Kernels that the plugin offers. Nothing is imported until an offer's `load` is called."""


@hookspec
def accelhub_fix_tp_plan(model: Any, tp_size: int) -> Sequence[PlanRepair]:
    """Repairs to a model's tensor-parallel plan, laid over accelhub's own.

    Args:
        model: the transformers model on the meta device: no weights, only shapes.
        tp_size: over how many chips it is to be sharded.
    """


@hookspec
def accelhub_checks(root: Path, environ: Mapping[str, str]) -> Sequence[Finding]:
    """Check what the plugin needs on this host, under the rules of `accelhub_discover`."""
