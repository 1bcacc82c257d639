"""Tiny random models of real architectures, for tests: a few layers, float32, made in milliseconds."""

from pathlib import Path
from typing import Any

VOCABULARY = 128

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GEMMA = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
_MOE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_SPECIAL: dict[str, dict[str, Any]] = {
    "gemma3_text": _GEMMA,
    "gpt2": {"n_embd": 64, "n_head": 8, "n_layer": 2, "n_positions": 256},
    "gpt_oss": {**_MOE, **_GEMMA},
    "mamba2": {"num_heads": 8, "state_size": 16, "n_groups": 1, "expand": 2, "chunk_size": 8},
    "mixtral": _MOE,
    "qwen3_moe": _MOE,
}
_UNKNOWN = {"gpt2": _COMMON.keys() - {"vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"}}


def make(model_type: str, **changes: Any) -> Any:
    """A random model of an architecture, the same one each time; `changes` go to its configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {**_COMMON, **_SPECIAL.get(model_type, {}), **changes}
    if model_type == "mamba2":
        settings["head_dim"] = settings["expand"] * settings["hidden_size"] // settings["num_heads"]
    for name in _UNKNOWN.get(model_type, ()):
        del settings[name]
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings), dtype=torch.float32).eval()


def save(model_type: str, folder: Path, **changes: Any) -> Path:
    """The same in a folder, as `from_pretrained` takes it."""
    make(model_type, **changes).save_pretrained(folder)
    return folder


def save_case(case: str, folder: Path) -> Path:
    """As `save`, from one word: ARCHITECTURE[,NAME=NUMBER...]. The folder is named after it."""
    architecture, *changes = case.split(",")
    numbers = {name: int(value) for name, value in (change.split("=") for change in changes)}
    return save(architecture, folder / case, **numbers)


def prompt() -> Any:
    """Token ids of shape (2, 7)."""
    import torch

    return torch.randint(3, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(1))
