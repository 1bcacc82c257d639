"""The table of TPU chips, and which counts of them form a slice on one host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from accelhub.types import Found

GIB: Final = 1024**3


@dataclass(frozen=True)
class Chip:
    """A kind of TPU.

    Attributes:
        pci_id: what /sys/bus/pci/devices/*/device says.
        hbm_bytes: memory of one chip, in bytes.
        devices: PyTorch devices of one chip. Each is a PCI function with a VFIO group of its own.
        topologies: chips -> what TORCH_TPU_TOPOLOGY calls a single-host slice of that many.
    """

    kind: str
    pci_id: str
    hbm_bytes: int
    devices: int
    topologies: Mapping[int, str]


_CUBE: Final = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,2,2"}
_PLANE: Final = {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}

# PCI ids, topologies, memory and devices: torch_tpu 0.2.0, torch_tpu/_internal/utils/hardware.py, which takes memory
# from Google's pages on each kind. That a v7 chip shows two PCI functions: tpu-inference pull request 1266.
CHIPS: Final = (
    Chip("v4", "0x005e", 32 * GIB, 1, _CUBE),
    Chip("v5p", "0x0062", 95 * GIB, 1, _CUBE),
    Chip("v5e", "0x0063", 16 * GIB, 1, _PLANE),
    Chip("v6e", "0x006f", 32 * GIB, 1, _PLANE),
    Chip("v7", "0x0076", 192 * GIB, 2, {1: "1,1,1,2", 2: "1,2,1,2", 4: "2,2,1,2"}),
)

BY_PCI_ID: Final = {chip.pci_id: chip for chip in CHIPS}
BY_KIND: Final = {chip.kind: chip for chip in CHIPS}


def check_count(found: Found, count: int) -> str:
    """Why `count` chips cannot be launched on; "" if they can."""
    chip = BY_KIND.get(found.kind)
    if chip is None:  # an emulation of no kind in particular takes any count
        return ""
    if count not in chip.topologies:
        legal = ", ".join(map(str, chip.topologies))
        return (
            f"TPU {found.kind} forms slices of {legal} chips on one host, not of {count}; there are {found.chips} here"
        )
    if count > found.chips:
        return f"there are {found.chips} TPU {found.kind} chips here, not {count}"
    return ""
