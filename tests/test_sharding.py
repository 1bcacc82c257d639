"""`auto()`, `shard()` and `auto("replicate")` on two CPU processes; the same code as on chips."""

import json
import time
from pathlib import Path

import pytest

import tiny_models
from launching import launch

CPU = {"ACCELHUB_DEVICE": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
CASES = {
    # chips: model: KV heads that a chip caches, and the fraction of the parameters that it may hold
    2: {
        "qwen3": (2, 0.51),
        "gemma3_text": (2, 0.51),
        "gpt2": (4, 0.6),
        "llama,hidden_size=144,num_attention_heads=9,num_key_value_heads=3": (3, 0.75),
    },
    4: {
        "qwen3,num_key_value_heads=2": (1, 0.28),
        "llama,hidden_size=96,num_attention_heads=6,num_key_value_heads=2": (1, 0.35),
    },
}


@pytest.mark.parametrize("chips", CASES)
def test_sharded_models_equal_one_copy(tmp_path, chips):
    for case in CASES[chips]:
        tiny_models.save_case(case, tmp_path)
    done = launch("sharded_models.py", tmp_path, *CASES[chips], chips=chips, emulate=None, **CPU)
    assert done.returncode == 0, done.stderr
    for case, (kv_heads, fraction) in CASES[chips].items():
        for rank in range(chips):
            result = json.loads((tmp_path / f"{case}.{rank}.json").read_text())
            assert result["error"] <= 1e-4, case
            assert result["gradient_error"] <= 1e-4, case
            assert result["same_tokens"], case
            assert result["same_tokens_static"], case
            assert result["same_tokens_chunked"], case
            assert result["cached_heads"] == [kv_heads] * 3, case
            assert result["held"] <= fraction, case
    said = done.stderr
    assert ("9 query and 3 KV heads over 2 chips cannot be dealt out" in said) == (chips == 2)
    assert ("no plan for the layers of GPT2LMHeadModel: one was derived and proved" in said) == (chips == 2)
    assert ("8 query and 2 KV heads over 4 chips: 2 chips share each KV head" in said) == (chips == 4)


@pytest.mark.parametrize(
    ("fsdp_size", "cases"),
    [(1, ["qwen3,num_key_value_heads=2", "gpt2"]), (2, ["qwen3,num_key_value_heads=1", "gpt2"])],
)
def test_training_and_saving_equal_one_process(tmp_path, fsdp_size, cases):
    for case in cases:
        tiny_models.save_case(case, tmp_path)
    done = launch("sharded_training.py", tmp_path, fsdp_size, *cases, chips=4, emulate=None, **CPU)
    assert done.returncode == 0, done.stderr
    for case in cases:
        result = json.loads((tmp_path / f"{case}.0.json").read_text())
        assert result["loss_error"] <= 1e-6, case
        assert result["gradient_error"] <= 1e-5, case
        assert result["parameter_error"] <= 1e-3, case  # AdamW's first steps divide by the gradient: noise counts
        assert result["saved_alike"], case


def test_a_rank_that_fails_to_load_ends_the_others(tmp_path):
    tiny_models.save("qwen3", tmp_path / "qwen3")
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import accelhub, pathlib, time
from transformers import AutoModelForCausalLM as Model, PreTrainedModel
if accelhub.rank() == 1:
    def fail(*args, **kwargs):
        pathlib.Path({str(tmp_path / "failed")!r}).write_text(str(time.time()))
        raise OSError("this rank cannot read its disk")
    PreTrainedModel._load_pretrained_model = fail
Model.from_pretrained({str(tmp_path / "qwen3")!r}, device_map=accelhub.auto())
accelhub.device()
import torch
torch.distributed.barrier()
"""
    )
    done = launch(script, emulate=None, timeout=120, **CPU)
    assert time.time() - float((tmp_path / "failed").read_text()) < 20  # transformers' process group waits for 2 h
    assert done.returncode == 1
    assert "this rank cannot read its disk" in done.stderr
    assert "rank 1 failed with exit code 1; the other ranks were stopped" in done.stderr


def test_a_model_without_a_plan_and_the_ways_around_it(tmp_path):
    tiny_models.save("mamba2", tmp_path / "mamba2")
    tiny_models.save("qwen3", tmp_path / "qwen3")
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import json, accelhub, torch
from transformers import AutoModelForCausalLM as Model
from accelhub.errors import AccelhubError
folder = {str(tmp_path)!r}
result = {{}}
for name, load in {{
    "auto": lambda: Model.from_pretrained(f"{{folder}}/mamba2", device_map=accelhub.auto()),
    "missing": lambda: accelhub.shard(f"{{folder}}/nowhere"),
}}.items():
    try:
        load()
    except AccelhubError as error:
        result[name] = f"{{type(error).__name__}} {{error}}"
whole = Model.from_pretrained(f"{{folder}}/mamba2", device_map=accelhub.auto("replicate"))
result["whole"] = type(whole.backbone.embeddings.weight).__name__
explicit = Model.from_pretrained(f"{{folder}}/qwen3", **accelhub.shard(f"{{folder}}/qwen3"))
result["explicit"] = list(explicit.model.layers[0].mlp.up_proj.weight.to_local().shape)
open(f"{{folder}}/{{accelhub.rank()}}.json", "w").write(json.dumps(result))
"""
    )
    done = launch(script, emulate=None, **CPU)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        result = json.loads(Path(tmp_path, f"{rank}.json").read_text())
        assert result["auto"].startswith("PlanError transformers has no tensor-parallel plan for Mamba2ForCausalLM")
        assert "backbone.layers.*.mixer.out_proj: " in result["auto"]
        assert 'accelhub.auto("replicate")' in result["auto"]
        assert result["missing"].startswith("UsageError cannot read the configuration")
        assert result["whole"] == "Parameter"
        assert result["explicit"] == [64, 64]  # half of 128 rows
