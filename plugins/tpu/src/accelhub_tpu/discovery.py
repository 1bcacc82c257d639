"""TPU chips of this host, from sysfs and VFIO: no driver is asked, no device is opened."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from accelhub.types import Absent, Found
from accelhub_tpu.chips import BY_PCI_ID, Chip

_GOOGLE: Final = "0x1ae0"
_PCI: Final = "sys/bus/pci/devices"
EMULATE: Final = "to try it without a TPU: accelhub launch --emulate tpu, or ACCELHUB_EMULATE=tpu"


def discover(root: Path) -> Found | Absent:
    """Count the chips whose VFIO group is there for us.

    A PCI function without one belongs to another container or host; other vendors' VFIO groups and the control node
    /dev/vfio/vfio are no chips.
    """
    folder = root / _PCI
    try:
        functions = list(_functions(root))
    except OSError as error:
        return Absent(f"{_installed()}; {folder} cannot be read: {error.strerror}", EMULATE)
    usable = [chip for chip, group in functions if group]
    if not usable:
        hidden = f" ({len(functions)} without a group under {root / 'dev/vfio'})" if functions else ""
        return Absent(f"{_installed()}; 0 TPU chips found under {folder}{hidden}", EMULATE)
    chip = usable[0]
    count, half = divmod(len(usable), chip.devices)
    problem = _problem()
    if any(other is not chip for other in usable):
        problem = "chips of several kinds in one host, which no slice can span: " + ", ".join(c.kind for c in usable)
    elif half:
        problem = (
            f"{len(usable)} devices are visible, but a {chip.kind} chip has {chip.devices}: pass whole chips through"
        )
    return Found(chip.kind, count or 1, chip.devices, chip.hbm_bytes, problem)


def torch_tpu_version() -> str | None:
    try:
        return version("torch_tpu")
    except PackageNotFoundError:
        return None


def _functions(root: Path) -> Iterator[tuple[Chip, bool]]:
    for device in sorted((root / _PCI).iterdir()):
        if _read(device / "vendor") == _GOOGLE and (chip := BY_PCI_ID.get(_read(device / "device"))):
            yield chip, _has_vfio_group(root, device)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):  # a device that went away, or that this user may not read
        return ""


def _has_vfio_group(root: Path, device: Path) -> bool:
    try:
        return (root / "dev/vfio" / (device / "iommu_group").readlink().name).exists()
    except OSError:
        return False


def _installed() -> str:
    found = torch_tpu_version()
    return f"torch_tpu {found} is installed" if found else "torch_tpu is not installed"


def _problem() -> str:
    if torch_tpu_version() is None:
        return "torch_tpu is not installed; pip install 'accelhub-tpu[torch]' (with torch from PyTorch's CPU index)"
    return ""
