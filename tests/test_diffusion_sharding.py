"""Models and pipelines of diffusers, sharded over two processes: on the CPU, and on emulated TPU chips."""

import json
import subprocess
import sys

import pytest

from accelhub.errors import PlanError, UsageError
from accelhub.parallel.diffusion import diffusion_arguments, is_diffusion
from launching import launch

LEGAL = "as 1, 2, 4 do"
WITH_PLAN = (
    "Flux2Transformer2DModel, FluxTransformer2DModel, QwenImage21Transformer2DModel, QwenImageTransformer2DModel"
)


def flux(**changes):
    import torch
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    settings = {
        "in_channels": 16,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 32,
        "axes_dims_rope": (4, 4, 8),
    }
    return FluxTransformer2DModel(**settings | changes)


def qwenimage():
    import torch
    from diffusers import QwenImageTransformer2DModel

    torch.manual_seed(0)
    return QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
    )


def vae():
    from diffusers import AutoencoderKL

    return AutoencoderKL(block_out_channels=(4,), norm_num_groups=1)


def pipeline():
    """FluxPipeline without text encoders: embeddings are given to it."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline

    return FluxPipeline(FlowMatchEulerDiscreteScheduler(), vae(), None, None, None, None, flux())


CASES = {"flux": flux, "qwenimage": qwenimage, "pipeline": pipeline}


def sharded(folder, cases, **where):
    """What each of two ranks found out about each case."""
    for case in cases:
        CASES[case]().save_pretrained(folder / case)
    done = launch("sharded_diffusion.py", folder, *cases, **where)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{case}.{rank}.json").read_text()) for case in cases for rank in range(2)], done


def check(results, device):
    for result in results:
        assert max(result["errors"]) <= 1e-4
        assert result["devices"] == [device]
        # Embeddings and the layers that modulate norms are whole; of all others each rank has its half.
        assert result["held_split"] == 0.5
        assert result["split"] >= 0.55
        assert result["held"] <= 0.75


def test_sharded_on_the_cpu_equals_one_copy(tmp_path):
    results, done = sharded(tmp_path, CASES, emulate=None, ACCELHUB_DEVICE="cpu")
    check(results, "cpu")
    assert done.stderr.count("FluxPipeline: transformer is sharded over 2 chips; the rest is loaded whole") == 1


def test_sharded_on_emulated_tpu_chips_equals_one_copy(tmp_path):
    results, _ = sharded(tmp_path, ["pipeline"])
    check(results, "tpu:0")


def test_what_is_diffusion_is_told_without_torch_and_diffusers(tmp_path):
    pipeline().save_pretrained(tmp_path / "pipeline")
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    code = f"""
import sys
from accelhub.parallel.diffusion import is_diffusion
folder = {str(tmp_path)!r}
print([is_diffusion(name) for name in (f"{{folder}}/pipeline", f"{{folder}}/pipeline/transformer", f"{{folder}}/llm",
    "owner/name", folder)], [name for name in ("torch", "diffusers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, True, False, False, False] []"


def test_what_is_diffusion_among_objects():
    import torch

    class Own(type(flux())):
        """A user's subclass."""

    assert all(map(is_diffusion, (flux(), pipeline(), Own(num_layers=0, num_single_layers=0))))
    assert not is_diffusion(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("case", CASES)
def test_illegal_degrees_are_refused_before_weights_are_loaded(tmp_path, case):
    model = CASES[case]()
    model.save_pretrained(tmp_path)
    for weights in tmp_path.rglob("*.safetensors"):
        weights.unlink()
    for given in (tmp_path, str(tmp_path), model):
        with pytest.raises(PlanError, match=LEGAL) as refused:
            diffusion_arguments(given, 3)
        for said in ("Transformer2DModel", "over 3 chips", "4 attention heads", 'accelhub.auto("replicate")'):
            assert said in str(refused.value)


def test_the_split_tensors_limit_the_degree_too():
    from diffusers import Flux2Transformer2DModel

    rope = {"axes_dims_rope": (4, 4, 4, 4), "joint_attention_dim": 32}
    odd = Flux2Transformer2DModel(
        num_layers=1, num_single_layers=1, num_attention_heads=4, attention_head_dim=16, mlp_ratio=194 / 64, **rope
    )
    with pytest.raises(
        PlanError, match=r"over 4 chips: .* 4 attention heads and every tensor that is split, as 1, 2 do"
    ):
        diffusion_arguments(odd, 4)


def test_a_model_without_a_plan_is_refused_with_those_that_have_one(tmp_path):
    vae().save_pretrained(tmp_path)
    for given in (tmp_path, vae()):
        with pytest.raises(PlanError, match=f"no tensor-parallel plan for AutoencoderKL.*; it has one for {WITH_PLAN}"):
            diffusion_arguments(given, 2)


def test_a_world_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELHUB_DEVICE", "cpu")
    pipeline().save_pretrained(tmp_path)
    assert diffusion_arguments(tmp_path, 1) == {}
    assert diffusion_arguments(tmp_path / "transformer", 1) == {"device_map": "cpu"}
    with pytest.raises(UsageError, match="leave out enable_parallelism"):
        diffusion_arguments(flux(), 1)


def test_a_class_that_diffusers_lacks_and_a_broken_file(tmp_path):
    (tmp_path / "config.json").write_text('{"_class_name": "NoSuchModel"}')
    with pytest.raises(UsageError, match=r"holds a NoSuchModel, which diffusers .* does not have"):
        diffusion_arguments(tmp_path, 2)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"cannot read .*config\.json"):
        is_diffusion(tmp_path)
