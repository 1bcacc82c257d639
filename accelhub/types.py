"""What hooks exchange: frozen dataclasses, nothing of torch.

Memory is in bytes, counts are counts of one host. "Chip" is what one buys and what `--chips` counts; "device" is what
PyTorch addresses, one process each. On most kinds they are the same; a TPU v7 chip holds two devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["found", "absent", "broken"]


@dataclass(frozen=True)
class Found:
    """Chips of one platform on this host.

    Attributes:
        kind: the vendor's short name of the chip, such as "v6e".
        chips: how many there are.
        devices_per_chip: how many PyTorch devices, and so processes, one chip makes.
        hbm_bytes_per_chip: memory of one chip in bytes; None where it is not known without touching the chip.
        problem: why the chips cannot be used although they are there, with the command that mends it; "" when usable.
    """

    kind: str
    chips: int
    devices_per_chip: int = 1
    hbm_bytes_per_chip: int | None = None
    problem: str = ""

    @property
    def devices(self) -> int:
        return self.chips * self.devices_per_chip


@dataclass(frozen=True)
class Absent:
    """No chip of the platform is here.

    Attributes:
        reason: what was looked for and where; shown whenever somebody asks for the platform by name.
        remedy: what to do instead, such as the command that emulates the platform; "" if nothing.
    """

    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Emulation:
    """How a platform is stood in for, as its plugin answers `accelhub_emulator`.

    Attributes:
        target: the full name of what is emulated, `KIND-CHIPS`; `accelhub_emulator` takes it back.
        found: the chips that the emulation presents.
        label: what goes wherever a result is shown, such as "emulated on CPU".
        problem: why it cannot start here, with the command that mends it; "" when it can.
    """

    target: str
    found: Found
    label: str
    problem: str = ""


@dataclass(frozen=True)
class Platform:
    """One line of `accelhub devices`: what is known of a platform on this host."""

    platform: str
    state: State
    kind: str | None
    chips: int
    devices: int
    hbm_bytes_per_chip: int | None
    reason: str
    plugin: str
    emulated: bool

    def __str__(self) -> str:
        label = f" ({self.reason})" if self.emulated else ""
        return f"{self.platform} {self.kind or self.state} x {self.chips}{label}"


@dataclass(frozen=True)
class Devices:
    """All platforms that the installed plugins know, and the one that `accelhub.device()` takes.

    Attributes:
        default: the name of that platform; None when `accelhub.device()` would raise.
        platforms: in order of preference.
    """

    default: str | None
    platforms: tuple[Platform, ...]


@dataclass(frozen=True)
class LaunchSpec:
    """What is about to be launched on this host, as plugins see it in `accelhub_launch_env`.

    Attributes:
        platform: the platform's name.
        found: its chips.
        chips: how many of them this launch uses.
        processes: how many processes start: chips x devices per chip.
        emulation: set when no real chip is involved.
    """

    platform: str
    found: Found
    chips: int
    processes: int
    emulation: Emulation | None = None


@dataclass(frozen=True)
class Variable:
    """An environment variable for the workers, and why it is set."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Process:
    """This process within its world, from the variables that torchrun sets.

    Attributes:
        rank, world_size: over all hosts.
        local_rank, local_world_size: on this host.
        emulation: what this process stands in for; None on a real device.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    emulation: Emulation | None = None


@dataclass(frozen=True)
class Prepared:
    """What a prepared process may use.

    Attributes:
        device: this process's device as PyTorch spells it, such as "tpu:0" or "cuda:3".
        device_map: what `from_pretrained` takes in a world of one process; "" for the device itself.
        notes: what was changed for the user, one sentence each; accelhub says them once.
    """

    device: str
    device_map: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileSettings:
    """How `torch.compile` is called for a device.

    Attributes:
        backend: the Dynamo backend.
        dynamic: passed on; False means that every shape is compiled by itself.
        mode: passed on.
        padding_multiple: lengths should be padded to a multiple of this.
        unsupported_dtypes: names of torch dtypes that the device does not compute natively.
    """

    backend: str
    dynamic: bool | None = None
    mode: str | None = None
    padding_multiple: int = 1
    unsupported_dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelOffer:
    """A kernel that a plugin can supply.

    Attributes:
        name: unique within the platform.
        op: the operation it computes, such as "rms_norm".
        source: who wrote it: "own", "tokamax", "jax", "nkilib", a Hub repository.
        layers: class names of the layers that it serves.
        dtypes: names of torch dtypes.
        load: imports the kernel and returns the callable.
        reference: the same computation in plain torch, to check the kernel against.
    """

    name: str
    op: str
    source: str
    layers: tuple[str, ...]
    dtypes: tuple[str, ...]
    load: Callable[[], Callable[..., Any]]
    reference: Callable[..., Any]


@dataclass(frozen=True)
class PlanRepair:
    """A change to a model's tensor-parallel plan.

    Attributes:
        plan: module pattern (with `*` for layer numbers) -> transformers' style, laid over the model's own plan.
        reason: what would go wrong without it.
    """

    plan: dict[str, str] = field(hash=False)
    reason: str


@dataclass(frozen=True)
class Finding:
    """The result of one check of an installation: what was checked, whether it is well, evidence and remedy."""

    name: str
    ok: bool
    evidence: str
    remedy: str = ""
