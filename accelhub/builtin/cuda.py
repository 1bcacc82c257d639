"""NVIDIA GPUs through the CUDA build of torch.

Found through the files of the NVIDIA driver; HBM is not in them and stays unknown until torch is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from accelhub.plugins import hookimpl
from accelhub.types import Absent, CompileSettings, Found, Prepared, Process


@hookimpl
def accelhub_discover(root: Path, environ: Mapping[str, str]) -> Found | Absent:
    information = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    devices = sorted(root.glob("dev/nvidia[0-9]*"))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    chips = len(information) or len(devices)
    if visible is not None:
        chips = min(chips, len([entry for entry in visible.split(",") if entry.strip() and entry.strip() != "-1"]))
    if not chips:
        limit = f" with CUDA_VISIBLE_DEVICES={visible!r}" if visible is not None else ""
        return Absent(f"no NVIDIA GPU under {root / 'proc/driver/nvidia/gpus'} or {root / 'dev'}{limit}")
    return Found(kind=_model(information), chips=chips, problem=_problem())


@hookimpl
def accelhub_prepare_process(process: Process) -> Prepared:
    import torch

    several = process.world_size == 1 and torch.cuda.device_count() > 1
    device_map = "auto" if several else ""  # accelerate's "auto" knows CUDA, and spreads over the GPUs of one process
    return Prepared(device=f"cuda:{process.local_rank}", device_map=device_map)


@hookimpl
def accelhub_compile_settings() -> CompileSettings:
    return CompileSettings(backend="inductor")


def _model(information: list[Path]) -> str:
    for path in information:
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.removeprefix("Model:").strip()
    return "NVIDIA GPU"


def _problem() -> str:
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        return "torch is not installed; pip install torch"
    if "+cpu" in torch_version:
        return f"torch {torch_version} is the CPU build; install the CUDA build of torch"
    return ""
