"""Models sharded over emulated chips by `accelhub.auto()`, against one copy on the CPU."""

import json
from pathlib import Path

import pytest

import tiny_models
from launching import accelhub

CASES = {
    2: ["mixtral", "gpt2", "qwen3,num_key_value_heads=1"],
    4: ["llama,hidden_size=96,num_attention_heads=6,num_key_value_heads=2"],
}
REPAIRS = {
    2: [
        "8 query and 1 KV heads over 2 chips: 2 chips share each KV head",
        "no plan for the layers of GPT2LMHeadModel: one was derived and proved",
    ],
    4: ["6 query and 2 KV heads over 4 chips: query heads are split 2 ways, 2 chips hold the same"],
}
CHIPS = 2


@pytest.fixture(scope="module", params=CASES)
def launched(request, tmp_path_factory):
    """The number of chips, the folder with what each found, and what was said."""
    folder = tmp_path_factory.mktemp("models")
    tests = Path(tiny_models.__file__).parent
    script = tests / "sharded_models.py"
    for case in CASES[request.param]:
        tiny_models.save_case(case, folder)
    options = ("--emulate", "tpu", "--chips", request.param)
    done = accelhub("launch", *options, script, folder, *CASES[request.param], PYTHONPATH=str(tests), timeout=580)
    assert done.returncode == 0, done.stderr
    return request.param, folder, done.stderr


def test_sharded_models_equal_one_copy_on_the_cpu(launched):
    chips, folder, _ = launched
    for case in CASES[chips]:
        for rank in range(chips):
            result = json.loads((folder / f"{case}.{rank}.json").read_text())
            assert result["device"] == "tpu:0"
            assert result["error"] <= 1e-4, case
            assert result["gradient_error"] <= 1e-4, case
            assert result["same_tokens"], case
            assert result["same_tokens_static"], case
            assert result["same_tokens_chunked"], case
            assert result["held"] < 1, case  # something is sharded


def test_what_was_repaired_and_why_is_said(launched):
    chips, _, said = launched
    assert [repair for repair in REPAIRS[chips] if repair not in said] == []


def test_that_compiled_graphs_break_at_collectives_is_said(launched):
    assert "emulated on CPU: compiled graphs break at collectives, which run through gloo" in launched[2]


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
