"""Runs a launch plan on torchrun's own API (torch.distributed.launcher)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelhub.launch.plan import LaunchPlan

_PREFIX: Final = "[rank ${rank}] "
_AUTOLOAD: Final = "TORCH_DEVICE_BACKEND_AUTOLOAD"


@dataclass(frozen=True)
class Failure:
    """Why a launch failed.

    Attributes:
        exit_code: that of the rank that failed first: its own, or 128 + the signal that ended it.
        reason: one line for the user; "" where a lone process has said all there is to say.
    """

    exit_code: int
    reason: str


def run(plan: LaunchPlan) -> Failure | None:
    """Run the plan's processes to their end; when one fails, the others are stopped."""
    os.environ.update({setting.name: setting.value for setting in plan.environment})
    with _no_device_backends():
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # Failure reports it in one line
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
            rank, first = min(error.failures.items(), key=lambda failure: failure[1].timestamp)
            return _failure(rank, first.exitcode, several=several)
        except SignalException as stopped:
            number = int(stopped.sigval)
            return Failure(128 + number, f"stopped by {signal.Signals(number).name}, and every rank with it")
    return None


def _failure(rank: int, code: int, *, several: bool) -> Failure:
    others = "; the other ranks were stopped" if several else ""
    if code < 0:
        return Failure(128 - code, f"rank {rank} was ended by {signal.Signals(-code).name}{others}")
    return Failure(code, f"rank {rank} failed with exit code {code}{others}" if several else "")


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
