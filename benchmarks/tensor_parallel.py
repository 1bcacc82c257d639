"""Three ways to shard attention whose KV heads do not divide over the chips, side by side on CPU processes.

    accelhub launch --chips 4 benchmarks/tensor_parallel.py     # ACCELHUB_DEVICE=cpu

- recipe: q, k, v and o under replicated_with_grad_allreduce, as the TPU guide has it
- shared: what accelhub does; chips that use the same KV heads hold the same part of k and v
- sliced: what accelhub does under FSDP2 and for quantised weights; k and v whole, their outputs cut

The bytes of GLM-4-9B's shape are computed from the meta model. Nothing here ran on an accelerator.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, Glm4Config, Qwen3Config
from transformers.distributed import DistributedConfig

import accelhub
from accelhub.parallel.planner import make_plan, meta_model
from accelhub.parallel.sizes import bytes_per_rank
from accelhub.parallel.styles import provide

NEW_TOKENS = 24
RECIPE = {
    f"model.layers.*.self_attn.{name}": "replicated_with_grad_allreduce"
    for name in ("q_proj", "k_proj", "v_proj", "o_proj")
}


def glm4(dtype: torch.dtype) -> Any:
    return Glm4Config(num_attention_heads=32, num_key_value_heads=2, head_dim=128, vocab_size=151552, dtype=dtype)


def small() -> Any:
    return Qwen3Config(
        vocab_size=4096,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=32,
        dtype=torch.float32,
    )


def overrides(config: Any, tp_size: int) -> dict[str, dict[str, str]]:
    """Each way as what it lays over the model's own plan."""
    model_class = AutoModelForCausalLM._model_mapping[type(config)]
    return {
        "recipe": RECIPE,
        "shared": make_plan(model_class, config, tp_size).override,
        "sliced": make_plan(model_class, config, tp_size, plain_weights=True).override,
    }


def gib_per_chip(config: Any, tp_size: int) -> dict[str, float]:
    model = meta_model(AutoModelForCausalLM._model_mapping[type(config)], config)
    return {
        way: max(bytes_per_rank(model, model.tp_plan | override, tp_size)) / 2**30
        for way, override in overrides(config, tp_size).items()
    }


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model(ids, labels=ids).loss.backward()
    return {name: full(weight.grad).clone() for name, weight in model.named_parameters() if weight.grad is not None}


def measure(folder: Path, override: dict[str, str], expected: dict[str, torch.Tensor]) -> dict[str, float]:
    config = DistributedConfig(tp_size=accelhub.world_size(), tp_plan=override)
    model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=config, dtype=torch.float32).eval()
    local = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in model.parameters()]
    ids = torch.arange(3, 35).reshape(1, 32)
    model.generate(ids, max_new_tokens=2, do_sample=False)
    start = time.perf_counter()
    model.generate(ids, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False)
    seconds = time.perf_counter() - start
    found = gradients(model, ids)
    attention = [name for name in expected if "self_attn" in name]
    return {
        "MiB a chip": sum(weight.numel() * weight.element_size() for weight in local) / 2**20,
        "tokens/s": NEW_TOKENS / seconds,
        "attention gradients": max((found[name].norm() / expected[name].norm()).item() for name in attention),
        "gradient error": max(
            ((found[name] - expected[name]).abs().max() / expected[name].abs().max()).item() for name in expected
        ),
    }


def main() -> None:
    accelhub.device()
    provide()
    tp_size = accelhub.world_size()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        torch.manual_seed(0)
        whole = AutoModelForCausalLM.from_config(small()).eval()
        whole.save_pretrained(folder)
        expected = gradients(whole, torch.arange(3, 35).reshape(1, 32))
        rows = {way: measure(folder, override, expected) for way, override in overrides(small(), tp_size).items()}
    if accelhub.rank():
        return
    glm = gib_per_chip(glm4(torch.bfloat16), tp_size)
    headings = [*next(iter(rows.values())), "GLM-4-9B, GiB a chip"]
    table = Table("", *headings, title=f"tp {tp_size}: 16 query and 2 KV heads on CPU processes; GLM-4-9B computed")
    for way, figures in rows.items():
        table.add_row(way, *(f"{value:.3g}" for value in figures.values()), f"{glm[way]:.2f}")
    base = rows["recipe"]
    for way in ("shared", "sliced"):
        ratios = [rows[way][name] / base[name] for name in ("MiB a chip", "tokens/s")]
        table.add_row(
            f"{way} / recipe", *(f"{ratio:.2f}" for ratio in ratios), "", "", f"{glm[way] / glm['recipe']:.2f}"
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
