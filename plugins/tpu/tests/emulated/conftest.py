"""These tests run on the emulated TPU, in this process: the real torch_tpu, on XLA's CPU backend."""

import os

import pytest

os.environ.setdefault("ACCELHUB_EMULATE", "tpu")


@pytest.fixture(scope="session", autouse=True)
def tpu():
    """The emulated device."""
    import accelhub

    return accelhub.device()
