"""Which platforms are here, and which of them is meant.

Pure: reads files and an environment through the plugins, imports no torch, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelhub.errors import AccelhubError, DeviceError, PluginError, UsageError
from accelhub.plugins.manager import Manager
from accelhub.types import Absent, Devices, Emulation, Found, Platform, State

HOST: Final = "cpu"
"""The platform that needs no accelerator: the last resort, and never a silent one."""


@dataclass(frozen=True)
class Sighting:
    """A platform as surveyed: what is shown of it, and what hooks need."""

    shown: Platform
    found: Found | None = None
    emulation: Emulation | None = None
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.shown.platform


def survey(manager: Manager, root: Path, environ: Mapping[str, str]) -> tuple[Sighting, ...]:
    """Look at every platform, in order of preference.

    Args:
        manager: the plugins to ask.
        root: the root of the filesystem to read.
        environ: `ACCELHUB_EMULATE=PLATFORM[:TARGET]` puts an emulation in the platform's place.

    Raises:
        UsageError: the emulation that was asked for does not exist, or would stand in for real chips unasked.
        DeviceError: the emulation cannot run here.
    """
    emulated, target = emulation_request(environ)
    if emulated and emulated not in manager.origins:
        raise UsageError(
            f"cannot emulate {emulated!r}: no plugin of that name is installed"
            f" (there are {', '.join(manager.origins)}); pip install 'accelhub-{emulated}[emulation]'"
        )
    sightings = []
    for name in manager.origins:
        sighting = _look(manager, name, root, environ)
        if name == emulated:
            sighting = _emulate(manager, name, target, sighting)
        if sighting is not None:
            sightings.append(sighting)
    return tuple(sightings)


def emulation_request(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Platform and target of `ACCELHUB_EMULATE`; ("", None) if nothing is to be emulated."""
    name, _, target = environ.get("ACCELHUB_EMULATE", "").strip().partition(":")
    return name, target or None


def choose(sightings: Sequence[Sighting], wanted: str | None, environ: Mapping[str, str]) -> Sighting:
    """The platform that is meant: `wanted`, else `ACCELHUB_DEVICE`, else the emulated one, else the best that is here.

    Args:
        wanted: a platform, with or without a device index: "cpu", "cuda:1".

    Raises:
        UsageError: no plugin knows the platform.
        DeviceError: the platform cannot be used here, or nothing was asked for and an accelerator is here but broken.
        PluginError: the platform's plugin is broken.
    """
    wanted = wanted or environ.get("ACCELHUB_DEVICE") or emulation_request(environ)[0]
    if wanted:
        return _named(sightings, wanted.partition(":")[0])
    usable = [sighting for sighting in sightings if sighting.shown.state == "found"]
    broken = [sighting for sighting in sightings if sighting.shown.state == "broken"]
    if not usable or usable[0].name == HOST:
        # Only the host itself is left: it must not take the place of chips that are here but unusable.
        for sighting in broken:
            if sighting.found is not None:
                raise DeviceError(f"{_unusable(sighting)}; ACCELHUB_DEVICE=cpu runs on the CPU all the same")
    if not usable:
        raise DeviceError("no usable platform: " + "; ".join(f"{each.name}: {each.shown.reason}" for each in sightings))
    return usable[0]


def report(sightings: Sequence[Sighting], environ: Mapping[str, str]) -> Devices:
    """The survey as `accelhub.devices()` returns it."""
    try:
        default = choose(sightings, None, environ).name
    except (DeviceError, PluginError):
        default = None
    return Devices(default, tuple(sighting.shown for sighting in sightings))


def _look(manager: Manager, name: str, root: Path, environ: Mapping[str, str]) -> Sighting | None:
    origin = manager.origins[name]
    failure = manager.failures.get(name)
    try:
        result = None if failure else manager.discover(name, root, environ)
    except AccelhubError as error:
        failure = str(error)
    if failure:
        return Sighting(Platform(name, "broken", None, 0, 0, None, failure, origin, emulated=False))
    match result:
        case Found():
            state: State = "broken" if result.problem else "found"
            return Sighting(_row(name, state, result, result.problem, origin, emulated=False), found=result)
        case Absent():
            shown = Platform(name, "absent", None, 0, 0, None, result.reason, origin, emulated=False)
            return Sighting(shown, remedy=result.remedy)
        case None:
            return None


def _emulate(manager: Manager, name: str, target: str | None, real: Sighting | None) -> Sighting:
    failure = manager.load_failure(name)
    if failure:
        raise failure
    emulation = manager.emulator(name, target)
    if emulation is None:
        raise UsageError(f"cannot emulate {name!r}: its plugin ({manager.origins[name]}) has no emulation")
    if real is not None and real.found is not None and target is None:
        raise UsageError(
            f"refusing to emulate {name}: {real.found.chips} real chips ({real.found.kind}) are here;"
            f" name what to emulate if that is meant: {name}:{emulation.target}"
        )
    if emulation.problem:
        raise DeviceError(f"cannot emulate {name}: {emulation.problem}")
    row = _row(name, "found", emulation.found, emulation.label, manager.origins[name], emulated=True)
    return Sighting(row, found=emulation.found, emulation=emulation)


def _row(name: str, state: State, found: Found, reason: str, origin: str, *, emulated: bool) -> Platform:
    memory = found.hbm_bytes_per_chip
    return Platform(name, state, found.kind, found.chips, found.devices, memory, reason, origin, emulated)


def _named(sightings: Sequence[Sighting], name: str) -> Sighting:
    for sighting in sightings:
        if sighting.name == name:
            if sighting.shown.state == "found":
                return sighting
            if sighting.shown.state == "broken" and sighting.found is None:
                raise PluginError(f"{name} was asked for, but its plugin is broken: {sighting.shown.reason}")
            if sighting.shown.state == "broken":
                raise DeviceError(_unusable(sighting))
            remedy = f"; {sighting.remedy}" if sighting.remedy else ""
            raise DeviceError(f"{name} was asked for, but {sighting.shown.reason}{remedy}")
    known = ", ".join(sighting.name for sighting in sightings)
    raise UsageError(f"unknown platform {name!r}: the installed plugins know {known}; plugins are called accelhub-NAME")


def _unusable(sighting: Sighting) -> str:
    shown = sighting.shown
    return f"{shown.chips} chips of {shown.platform} {shown.kind} are here but cannot be used: {shown.reason}"
