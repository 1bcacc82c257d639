"""Making a worker ready for its TPU."""

from __future__ import annotations

from accelhub.types import Prepared, Process
from accelhub_tpu import adapter


def prepare(process: Process) -> Prepared:
    """A process owns one device and sees it as `tpu:0`, whatever its rank."""
    notes: tuple[str, ...] = ()
    if process.emulation is not None:
        from accelhub_tpu.emulation import start

        notes = start(process)
    else:
        adapter.load()
    return Prepared(device="tpu:0", notes=notes)
