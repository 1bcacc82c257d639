"""`device()` and `auto()` on a machine without accelerators, each in a process of its own."""

import os
import subprocess
import sys

import pytest


def run(code, **environ):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACCELHUB_")}
    merged = {**inherited, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environ}
    program = (
        "import accelhub, torch\nfrom accelhub.errors import AccelhubError\n"
        f"try:\n    {code}\nexcept AccelhubError as e:\n    print(type(e).__name__, e)"
    )
    return subprocess.run([sys.executable, "-c", program], env=merged, capture_output=True, text=True, check=True)


def test_the_cpu_is_never_silent():
    done = run("print(accelhub.device(), accelhub.auto(), accelhub.device())")
    assert done.stdout.strip() == "cpu cpu cpu"
    assert done.stderr.count("no accelerator here, using cpu") == 1
    assert "0 TPU chips found" in done.stderr


@pytest.mark.parametrize("environ", [{"ACCELHUB_DEVICE": "cpu"}, {}])
def test_the_cpu_that_was_asked_for_is_silent(environ):
    done = run("print(accelhub.device(None if __import__('os').environ.get('ACCELHUB_DEVICE') else 'cpu'))", **environ)
    assert done.stdout.strip() == "cpu"
    assert "using cpu" not in done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("accelhub.device('tpu')", ("DeviceError", "0 TPU chips found under /sys/bus/pci", "--emulate tpu")),
        ("accelhub.device('xpu')", ("UsageError unknown platform 'xpu'", "tpu, cuda, cpu")),
        ("accelhub.device('cpu:3')", ("UsageError no device 'cpu:3'",)),
        ("accelhub.auto('half')", ("UsageError", "'shard' or 'replicate'")),
        ("accelhub.shard('x', tp_size=2)", ("UsageError", "does not fit a world of 1", "--chips 2")),
    ],
)
def test_one_clear_message(code, words):
    done = run(code)
    for word in words:
        assert word in done.stdout


def test_compile_on_the_cpu():
    done = run("print(accelhub.compile_settings().backend, accelhub.rank(), accelhub.world_size())")
    assert done.stdout.strip() == "inductor 0 1"


def test_importing_accelhub_imports_no_torch():
    rooms = "accelhub.placement, accelhub.compiling, accelhub.parallel, accelhub.launch.run"
    code = f"import sys, {rooms}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
