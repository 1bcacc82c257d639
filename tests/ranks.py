"""Groups of forked ranks on the CPU, for checks that must survive ranks that raise, die or hang.

Import torch and transformers before `run`: forked ranks then start in milliseconds. Not for use inside pytest, whose
threads do not survive a fork.
"""

import contextlib
import ctypes
import datetime
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Job = Callable[..., Iterable[Result]]

GRACE_S = 1.0
"""How long the other ranks have, once one has failed, to report what happened to them."""

_fork = multiprocessing.get_context("fork")


def run(
    world_size: int, job: Job, cases: Sequence[Any], *, timeout: float = 120, log: str = os.devnull
) -> Iterator[tuple[Any, list[Result]]]:
    """Run `job(case)` for each case on every rank of a group, and yield what each rank found.

    A job yields what it finds as it goes, so that what came before a failure is known too; under "stage" it may say
    what it does next. The ranks' findings have "status" only where something went wrong: "error" (with "error") or
    "hang". A group that something went wrong in is ended, and the remaining cases get a new one.

    Args:
        timeout: seconds for one case.
        log: the file to which the ranks' output is added.
    """
    remaining = list(cases)
    while remaining:
        with _group(world_size, job, log) as ranks:
            for case in list(remaining):
                results = _run_case(ranks, case, timeout)
                remaining.pop(0)
                yield case, results
                if any("status" in result for result in results):
                    break


@contextlib.contextmanager
def _group(world_size: int, job: Job, log: str) -> Iterator[list[Connection]]:
    """Started ranks, by the connections to them; killed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        ends = [_fork.Pipe() for _ in range(world_size)]
        processes = [
            _fork.Process(
                target=_rank, args=(rank, world_size, job, ends[rank][1], f"{folder}/store", log), daemon=True
            )
            for rank in range(world_size)
        ]
        for process, (_, theirs) in zip(processes, ends, strict=True):
            process.start()
            theirs.close()
        try:
            yield [ours for ours, _ in ends]
        finally:
            for process in processes:
                process.kill()
            for process, (ours, _) in zip(processes, ends, strict=True):
                process.join()
                ours.close()


def _run_case(ranks: list[Connection], case: Any, timeout: float) -> list[Result]:
    results: list[Result] = [{} for _ in ranks]
    for rank in ranks:
        with contextlib.suppress(BrokenPipeError):
            rank.send(case)
    running = {rank: results[number] for number, rank in enumerate(ranks)}
    deadline = time.monotonic() + timeout
    while running and (left := deadline - time.monotonic()) > 0:
        for rank in wait(list(running), left):
            try:
                found = rank.recv()
            except (EOFError, ConnectionResetError):
                found = {"status": "error", "error": "the process died"}
            if found is not None:
                running[rank] |= found
            if found is None or "status" in found:
                del running[rank]
            if found is not None and "status" in found:
                deadline = min(deadline, time.monotonic() + GRACE_S)
    for unfinished in running.values():
        unfinished |= {"status": "hang", "error": "no answer: it hangs, or waits for a rank that failed"}
    return results


def _rank(rank: int, world_size: int, job: Job, parent: Connection, store: str, log: str) -> None:
    """One rank: takes cases until it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives the parent, however that ends
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    number = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    os.environ.update({name: str(value) for name, value in number.items()}, ACCELHUB_DEVICE="cpu")
    import torch.distributed

    # A fork leaves torch's thread pool broken, to be replaced on its next use: not by two threads of a loader at once.
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=datetime.timedelta(hours=1)
    )
    while True:
        case = parent.recv()
        try:
            for found in job(case):
                parent.send(found)
            parent.send(None)
        except Exception as error:  # noqa: BLE001 - whatever the job raises is what is asked for
            traceback.print_exc()
            parent.send({"status": "error", "error": describe(error)})


def describe(error: BaseException) -> str:
    """One line: the type, what it says, and where in transformers or accelhub it was raised."""
    message = (str(error).strip().splitlines() or [""])[0][:300]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = Path(frame.filename).parts
        for package in ("transformers", "accelhub"):
            if package in parts:
                place = "/".join(parts[len(parts) - parts[::-1].index(package) - 1 :])
                return f"{type(error).__name__}: {message} @ {place}:{frame.lineno}"
    return f"{type(error).__name__}: {message}"
