"""Models sharded over two emulated chips by `accelhub.auto()`, against one copy on the CPU."""

import json
from pathlib import Path

import pytest

import tiny_models
from launching import accelhub

SHARDED = ["qwen3", "phi3", "mixtral", "gemma3_text"]
REPLICATED_ATTENTION = [
    "llama,hidden_size=144,num_attention_heads=9,num_key_value_heads=3",
    "qwen3,num_key_value_heads=1",
]
CHIPS = 2


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tests = Path(tiny_models.__file__).parent
    script = tests / "sharded_models.py"
    cases = [*SHARDED, *REPLICATED_ATTENTION]
    for case in cases:
        tiny_models.save_case(case, folder)
    done = accelhub(
        "launch", "--emulate", "tpu", "--chips", CHIPS, script, folder, *cases, PYTHONPATH=str(tests), timeout=580
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


@pytest.mark.parametrize("case", [*SHARDED, *REPLICATED_ATTENTION])
def test_sharded_model_equals_one_copy_on_the_cpu(launched, case):
    for rank in range(CHIPS):
        result = json.loads((launched[0] / f"{case}.{rank}.json").read_text())
        assert result["device"] == "tpu:0"
        assert result["error"] <= 1e-4
        assert result["gradient_error"] <= 1e-4
        assert result["same_tokens"]
        assert result["same_tokens_static"]
        assert result["held"] < 1  # something is sharded


def test_what_was_replicated_and_why_is_said(launched):
    assert "9 query and 3 KV heads do not divide over 2 chips" in launched[1]


def test_that_compiled_graphs_break_at_collectives_is_said(launched):
    assert "emulated on CPU: compiled graphs break at collectives, which run through gloo" in launched[1]


def test_a_rank_that_fails_ends_the_others_which_wait_for_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import accelhub, torch
import torch.distributed as dist
device = accelhub.device()
dist.init_process_group("tpu_dist")
if accelhub.rank() == 1:
    raise ValueError("boom")
dist.all_reduce(torch.ones(1, device=device))
"""
    )
    done = accelhub("launch", "--emulate", "tpu", "--chips", CHIPS, script, timeout=100)
    assert done.returncode == 1
    assert "[rank 1] ValueError: boom" in done.stderr
