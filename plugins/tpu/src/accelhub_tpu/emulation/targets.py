"""What can be emulated, and whether it can be here."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from accelhub.errors import UsageError
from accelhub.types import Emulation, Found
from accelhub_tpu.chips import BY_KIND, CHIPS
from accelhub_tpu.discovery import torch_tpu_version

LABEL: Final = "emulated on CPU"
GENERIC: Final = "generic"
_INSTALL: Final = "pip install 'accelhub-tpu[emulation]'"


def emulation(target: str | None) -> Emulation:
    """`KIND`, or `KIND-CHIPS`: "v6e-4". Without a kind, a TPU of no kind in particular, with any number of chips."""
    match = re.fullmatch(r"([a-z0-9]+)(?:-([1-9][0-9]*))?", target or GENERIC)
    kind, chips = match.groups() if match else ("", None)
    if kind == GENERIC:
        count = int(chips or 1)
        return Emulation(f"{GENERIC}-{count}", Found(GENERIC, count), LABEL, _problem())
    chip = BY_KIND.get(kind)
    count = int(chips) if chips else max(chip.topologies, default=0) if chip else 0
    if chip is None or count not in chip.topologies:
        legal = ", ".join(f"{chip.kind}-{count}" for chip in CHIPS for count in chip.topologies)
        raise UsageError(f"cannot emulate TPU {target!r}: on one host there are {legal}")
    found = Found(chip.kind, count, chip.devices, chip.hbm_bytes)
    return Emulation(f"{kind}-{count}", found, LABEL, _problem())


@cache
def plugin_path() -> Path | None:
    """The CPU PJRT plugin; None if its package is not installed."""
    package = find_spec("lammps_jax_pjrt_cpu")
    if package is None or package.origin is None:
        return None
    return next(iter(sorted(Path(package.origin).parent.glob("pjrt_c_api_cpu_plugin.*"))), None)


def _problem() -> str:
    if torch_tpu_version() is None:
        return f"torch_tpu is not installed; {_INSTALL}"
    if plugin_path() is None:
        return f"the CPU PJRT plugin is not installed (it exists for Linux on x86-64); {_INSTALL}"
    return ""
