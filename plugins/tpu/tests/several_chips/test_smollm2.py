"""SmolLM2-135M, a real model whose 9 query and 3 KV heads divide over no even number of chips."""

import json
import os
import re
from pathlib import Path

import pytest

from launching import accelhub, launch

EXAMPLE = Path(__file__).parents[4] / "examples/generate.py"
MODEL = os.environ.get("SMOLLM2", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="SMOLLM2 names no folder; make test makes it from the package")


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    done = launch("answer.py", MODEL, folder, chips=1, emulate=None, ACCELHUB_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "0.json").read_text())


def test_the_cpu_knows_the_answer(on_the_cpu):
    assert on_the_cpu["text"].startswith("The capital of France is Paris.")
    assert on_the_cpu["tokens"]["dynamic"] == on_the_cpu["tokens"]["static"]


@pytest.mark.parametrize("chips", [1, 2])
def test_emulated_chips_give_the_cpus_tokens(on_the_cpu, tmp_path, chips):
    done = launch("answer.py", MODEL, tmp_path, chips=chips, timeout=500)
    assert done.returncode == 0, done.stderr
    for rank in range(chips):
        result = json.loads((tmp_path / f"{rank}.json").read_text())
        assert result["device"] == "tpu:0"
        assert result["tokens"] == on_the_cpu["tokens"]
    assert "emulated on CPU" in done.stderr
    assert ("compiled graphs break at collectives" in done.stderr) == (chips > 1)


def test_the_demo_is_a_script_that_knows_nothing_of_chips():
    assert not re.search("tpu|emulat|neuron|cuda", EXAMPLE.read_text(), re.I)
    done = accelhub("launch", "--emulate", "tpu", "--chips", 2, EXAMPLE, MODEL)
    assert done.returncode == 0, done.stderr
    answer, speed = done.stdout.splitlines()  # of rank 0 alone
    assert answer == "[rank 0] The capital of France is Paris."
    assert re.fullmatch(r"\[rank 0\] [0-9.]+ tokens/s on tpu:0: tpu generic x 2 \(emulated on CPU\)", speed)
