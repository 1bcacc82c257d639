"""Runs the real torch_tpu on a CPU.

torch_tpu loads whatever PJRT plugin it is given. Here it is given XLA's CPU compiler and runtime, with what it asks of
a TPU beyond that filled in (`pjrt`), operators whose TPU lowering a CPU cannot run written out (`operators`), Pallas
kernels interpreted, and several chips played by several processes that talk through gloo (`process_group`).

Dispatch, lowering, recompilation and errors are torch_tpu's own. Numerics, speed, memory, Mosaic kernels and the real
`tpu_dist` of a TPU are not shown by it.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

from accelhub.types import Process
from accelhub_tpu import adapter
from accelhub_tpu.emulation import pjrt
from accelhub_tpu.emulation.environment import variables
from accelhub_tpu.emulation.targets import LABEL, plugin_path


def start(process: Process) -> tuple[str, ...]:
    """Turn this process into an emulated TPU worker; the order of the steps matters. Returns notes for the user."""
    for variable in variables(os.environ):
        os.environ.setdefault(variable.name, variable.value)
    warnings.filterwarnings("ignore", "<TorchTpu/Performance/TcMalloc/")  # tcmalloc speeds up TPU hosts, no laptop

    import torch

    pjrt.overlay(adapter.pjrt_library(), str(plugin_path()))
    adapter.register_device()

    from accelhub_tpu.emulation import operators

    operators.override()
    # Flash attention lowers to a Mosaic kernel; without it SDPA lowers to plain StableHLO.
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    if find_spec("jax") is not None:
        adapter.interpret_pallas_kernels()
    _create_client()
    notes = [f"{LABEL}: device tpu is the real torch_tpu on XLA's CPU backend, no TPU is involved"]
    if process.world_size > 1:
        from accelhub_tpu.emulation import graphs, process_group

        process_group.register()
        adapter.run_collectives_between_graphs(graphs.EagerCollectives)
    return tuple(notes)


def _create_client() -> None:
    """Start the runtime while it believes to be alone: in a world it would look for the other ranks' chips."""
    import torch

    world_size = os.environ.pop("WORLD_SIZE", None)
    try:
        torch.zeros(1, device="tpu").cpu()
    finally:
        if world_size is not None:
            os.environ["WORLD_SIZE"] = world_size
