"""The TPU plugin. Each hook is answered by the room of its name; see `accelhub.plugins.spec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from accelhub.plugins import hookimpl
from accelhub.types import Absent, CompileSettings, Emulation, Finding, Found, LaunchSpec, Prepared, Process, Variable


@hookimpl
def accelhub_discover(root: Path) -> Found | Absent:
    from accelhub_tpu.discovery import discover

    return discover(root)


@hookimpl
def accelhub_check_chips(found: Found, count: int) -> str:
    from accelhub_tpu.chips import check_count

    return check_count(found, count)


@hookimpl
def accelhub_launch_env(spec: LaunchSpec, environ: Mapping[str, str]) -> Sequence[Variable]:
    from accelhub_tpu.launch import launch_env

    return launch_env(spec, environ)


@hookimpl
def accelhub_prepare_process(process: Process) -> Prepared:
    from accelhub_tpu.process import prepare

    return prepare(process)


@hookimpl
def accelhub_compile_settings() -> CompileSettings:
    from accelhub_tpu.compiling import SETTINGS

    return SETTINGS


@hookimpl
def accelhub_emulator(target: str | None) -> Emulation:
    from accelhub_tpu.emulation.targets import emulation

    return emulation(target)


@hookimpl
def accelhub_checks(root: Path) -> Sequence[Finding]:
    from accelhub_tpu.checks import checks

    return checks(root)
