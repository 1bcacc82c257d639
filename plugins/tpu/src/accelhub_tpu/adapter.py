"""Everything private of torch_tpu and jax that this plugin touches, and nothing else.

Written against torch_tpu 0.2.0 and jax 0.10.2. A release that moved one of these names is met with one clear error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from accelhub.errors import DeviceError
from accelhub_tpu.discovery import torch_tpu_version

_SUPPORTED: Final = "0.2."
_SLICE: Final = ("TORCH_TPU_SLICEBUILDER_ADDRESSES", "TORCH_TPU_TOPOLOGY", "TORCH_TPU_XPROF_SESSION_ID")
_LAUNCH_SCRIPT: Final = """
import json, os, sys
from torch_tpu._internal.distributed.distributed import set_tpu_launch_env
set_tpu_launch_env(nnodes=1, nproc_per_node=int(sys.argv[1]))
print(json.dumps({name: os.environ[name] for name in sys.argv[2:]}))
"""


def load() -> None:
    """Load torch_tpu where `import torch` has not (TORCH_DEVICE_BACKEND_AUTOLOAD=0)."""
    _private("torch_tpu._loader").load()


def register_device() -> None:
    """Register the device "tpu" where no chip exists. Its runtime starts with the first tensor."""
    with contextlib.redirect_stderr(io.StringIO()):  # four lines of progress that concern nobody here
        _private("torch_tpu._loader")._init_device("tpu")


def pjrt_library() -> str:
    """Path of the PJRT plugin that torch_tpu loaded."""
    _private("torch_tpu")
    return os.environ["TPU_LIBRARY_PATH"]


def launch_environment(processes: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a single-host slice of `processes` devices needs, from torch_tpu itself.

    Asked in a child process: importing torch_tpu here would load libtpu into the launcher.
    """
    _require_version()
    child = {**environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", _LAUNCH_SCRIPT, str(processes), *_SLICE]
    done = subprocess.run(command, env=child, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeviceError(f"torch_tpu could not describe a slice of {processes} devices: {last}")
    variables: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return variables


def interpret_pallas_kernels() -> None:
    """Make every `pallas_call` of this process run interpreted, as plain XLA operations."""
    config = _private("jax._src.config")
    config.pallas_tpu_interpret_mode_context_manager.set_global(True)


def run_collectives_between_graphs(stand_in: Callable[[Any], Any]) -> None:
    """Let a compiled graph run its collectives outside of compiled programs.

    torch_tpu already cuts a graph at each collective and compiles the pieces one by one; here the pieces that hold a
    collective are left as they are. Ranks need no handshake over what they compiled, since no program spans them.

    Args:
        stand_in: makes what runs from the module of such a piece.
    """
    splitting = _private("torch_tpu._internal.compile.split_compiler")
    collectives = _private("torch_tpu._internal.distributed.collective_ops")
    original = splitting._SubmodCompiler.compile_submod

    def compile_submod(self: Any, module: Any, args: Any, kwargs: Any, submod_name: str | None = None) -> Any:
        nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        if any(collectives.is_collective_op(node.target) for node in nodes):
            return stand_in(module)
        return original(self, module, args, kwargs, submod_name=submod_name)

    splitting._SubmodCompiler.compile_submod = compile_submod
    splitting.handshake.should_handshake = lambda _counts: False


def _private(module: str) -> Any:
    _require_version()
    try:
        return import_module(module)
    except ImportError as error:
        raise DeviceError(f"accelhub-tpu needs {module}, which failed to import: {error}") from error


def _require_version() -> None:
    found = torch_tpu_version()
    if found is None:
        raise DeviceError("torch_tpu is not installed; pip install 'accelhub-tpu[torch]'")
    if not found.startswith(_SUPPORTED):
        raise DeviceError(
            f"torch_tpu {found} is installed; this accelhub-tpu knows torch_tpu {_SUPPORTED}x:"
            f" pip install 'torch-tpu=={_SUPPORTED}*', or a newer accelhub-tpu"
        )
