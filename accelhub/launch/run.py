"""Runs a launch plan on torchrun's own API (torch.distributed.launcher)."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Final

from accelhub.launch.plan import LaunchPlan

_PREFIX: Final = "[rank ${rank}] "
_AUTOLOAD: Final = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def run(plan: LaunchPlan) -> int:
    """Run the plan's processes to their end.

    Returns:
        0, or the exit code of the process that failed first: its own code, or 128 + the signal that ended it.
    """
    os.environ.update({setting.name: setting.value for setting in plan.environment})
    with _no_device_backends():
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we report the failure ourselves
    several = plan.spec.processes > 1
    with tempfile.TemporaryDirectory(prefix="accelhub-launch-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=plan.spec.processes,
            run_id="accelhub",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            # A lone process keeps the terminal; of several, each line is marked with its rank.
            logs_specs=DefaultLogsSpecs(log_dir=logs, tee=Std.ALL if several else Std.NONE),
            log_line_prefix_template=_PREFIX,
        )
        try:
            elastic_launch(config, plan.command[0])(*plan.command[1:])
        except ChildFailedError as error:
            first = min(error.failures.values(), key=lambda failure: failure.timestamp)
            code: int = first.exitcode
            return code if code >= 0 else 128 - code
        except SignalException as stopped:
            return 128 + int(stopped.sigval)
    return 0


@contextlib.contextmanager
def _no_device_backends() -> Iterator[None]:
    """Import torch without the vendor's backend: the launcher must not load a device's runtime, and saves the time."""
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_AUTOLOAD]
        else:
            os.environ[_AUTOLOAD] = before
