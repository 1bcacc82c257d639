"""`auto()`, `shard()` and `auto("replicate")` on two CPU processes; the same code as on chips."""

import json
from pathlib import Path

import pytest

import tiny_models
from launching import launch

CASES = ["qwen3", "gemma3_text", "llama,hidden_size=144,num_attention_heads=9,num_key_value_heads=3"]


@pytest.mark.parametrize("case", CASES)
def test_sharded_model_equals_one_copy(tmp_path, case):
    tiny_models.save_case(case, tmp_path)
    done = launch("sharded_models.py", tmp_path, case, emulate=None, ACCELHUB_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        result = json.loads((tmp_path / f"{case}.{rank}.json").read_text())
        assert result["error"] <= 1e-4
        assert result["gradient_error"] <= 1e-4
        assert result["same_tokens"]
        assert result["held"] < 1
    assert ("9 query and 3 KV heads do not divide over 2 chips" in done.stderr) == ("9" in case)


def test_a_model_without_a_plan_and_the_ways_around_it(tmp_path):
    tiny_models.save("gpt2", tmp_path / "gpt2")
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
    "auto": lambda: Model.from_pretrained(f"{{folder}}/gpt2", device_map=accelhub.auto()),
    "missing": lambda: accelhub.shard(f"{{folder}}/nowhere"),
}}.items():
    try:
        load()
    except AccelhubError as error:
        result[name] = f"{{type(error).__name__}} {{error}}"
whole = Model.from_pretrained(f"{{folder}}/gpt2", device_map=accelhub.auto("replicate"))
result["whole"] = type(whole.transformer.wte.weight).__name__
explicit = Model.from_pretrained(f"{{folder}}/qwen3", **accelhub.shard(f"{{folder}}/qwen3"))
result["explicit"] = list(explicit.model.layers[0].mlp.up_proj.weight.to_local().shape)
open(f"{{folder}}/{{accelhub.rank()}}.json", "w").write(json.dumps(result))
"""
    )
    done = launch(script, emulate=None, ACCELHUB_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        result = json.loads(Path(tmp_path, f"{rank}.json").read_text())
        assert result["auto"].startswith("PlanError GPT2LMHeadModel has no tensor-parallel plan")
        assert 'accelhub.auto("replicate")' in result["auto"]
        assert result["missing"].startswith("UsageError cannot read the configuration")
        assert result["whole"] == "Parameter"
        assert result["explicit"] == [64, 64]  # half of 128 rows
