"""The CPU, always there: one chip whose cores any number of processes share."""

from __future__ import annotations

import platform

from accelhub.plugins import hookimpl
from accelhub.types import CompileSettings, Found, Prepared


@hookimpl
def accelhub_discover() -> Found:
    return Found(kind=platform.machine() or "unknown", chips=1)


@hookimpl
def accelhub_check_chips() -> str:
    return ""


@hookimpl
def accelhub_prepare_process() -> Prepared:
    return Prepared(device="cpu")


@hookimpl
def accelhub_compile_settings() -> CompileSettings:
    return CompileSettings(backend="inductor")
