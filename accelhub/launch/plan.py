"""Decides what a launch does, without doing it: `--dry-run` prints this."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from accelhub.errors import DeviceError, UsageError
from accelhub.platforms import choose, emulation_request, survey
from accelhub.plugins.manager import Manager
from accelhub.process import require_torch
from accelhub.types import LaunchSpec, Variable


@dataclass(frozen=True)
class Setting:
    """A variable as the workers get it. `source` is "user" where the user's value won."""

    name: str
    value: str
    source: str
    reason: str


@dataclass(frozen=True)
class LaunchPlan:
    """Everything about a launch on this host."""

    spec: LaunchSpec
    command: tuple[str, ...]
    environment: tuple[Setting, ...]

    @property
    def headline(self) -> str:
        spec = self.spec
        label = f", {spec.emulation.label}: no {spec.platform} chip is involved" if spec.emulation else ""
        chips = f"{spec.chips} {'chip' if spec.chips == 1 else 'chips'}"
        processes = f"{spec.processes} {'process' if spec.processes == 1 else 'processes'}"
        return f"{processes} on {chips} of {spec.platform} {spec.found.kind}{label}"


def plan_launch(
    manager: Manager,
    environ: Mapping[str, str],
    script: str,
    arguments: Sequence[str],
    *,
    chips: int | Literal["all"],
    emulate: str | None,
    module: bool,
) -> LaunchPlan:
    """Plan one process per device on `chips` chips of the platform that is meant.

    Args:
        environ: what the workers inherit; `ACCELHUB_DEVICE` and `ACCELHUB_EMULATE` choose the platform.
        emulate: what to emulate; wins over both of these variables.
        script: a Python file, or a module's name if `module`.
        arguments: the script's own.

    Raises:
        UsageError: the script or the chip count does not exist.
        DeviceError, PluginError: the platform cannot be used, or torch cannot be imported.
    """
    if not module and not Path(script).is_file():
        kind = "it is a folder" if Path(script).is_dir() else "no such file"
        raise UsageError(f"cannot launch {script}: {kind}; give a Python file, or -m and a module's name")
    require_torch(environ)
    if emulate is not None:
        environ = {**environ, "ACCELHUB_EMULATE": emulate, "ACCELHUB_DEVICE": emulate.partition(":")[0]}
    sighting = choose(survey(manager, Path("/"), environ), None, environ)
    found, emulation = sighting.found, sighting.emulation
    if found is None:
        raise DeviceError(f"{sighting.name} has no chips here: {sighting.shown.reason}")
    count = found.chips if chips == "all" else chips
    if emulation is not None and emulation_request(environ)[1] is None:
        # Which host to emulate was left to the plugin: it has as many chips as are launched on.
        emulation = manager.emulator(sighting.name, f"{found.kind}-{count}") or emulation
        found = emulation.found
    illegal = manager.check_chips(sighting.name, found, count)
    if illegal:
        raise UsageError(f"cannot launch on {count} chips: {illegal}")
    spec = LaunchSpec(sighting.name, found, count, count * found.devices_per_chip, emulation)
    worker = ("-u", "-m", "accelhub.launch.worker", *(["-m"] if module else []), script, *arguments)
    return LaunchPlan(spec, (sys.executable, *worker), _environment(manager, spec, environ))


def _environment(manager: Manager, spec: LaunchSpec, environ: Mapping[str, str]) -> tuple[Setting, ...]:
    own = [Variable("ACCELHUB_DEVICE", spec.platform, "the platform this launch is for")]
    if spec.emulation is not None:
        own.append(Variable("ACCELHUB_EMULATE", f"{spec.platform}:{spec.emulation.target}", "what is emulated"))
    wanted = [*((variable, "accelhub") for variable in own)]
    wanted += [(variable, spec.platform) for variable in manager.launch_env(spec.platform, spec, environ)]
    settings = [Setting(variable.name, variable.value, source, variable.reason) for variable, source in wanted]
    fixed = {variable.name for variable in own}
    return tuple(
        setting
        if setting.name in fixed or setting.name not in environ
        else replace(setting, value=environ[setting.name], source="user", reason=f"kept; {setting.source} would set it")
        for setting in settings
    )
