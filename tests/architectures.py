"""Tiny random models of every causal language model that transformers maps: two or so layers of width 64, float32.

`config` knows the settings that architectures share and, in `SPECIAL`, those that only one of them needs. `save` writes
a model into a folder as `from_pretrained` takes it.
"""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

WIDTH, HEAD = 64, 16
VOCABULARY = 128

VARIANTS: dict[str, dict[str, Any]] = {
    "kv4": {"kv_heads": 4},
    "kv2": {"kv_heads": 2},
    "kv1": {"kv_heads": 1},
    "tied": {"tied": True},
    "odd": {"vocabulary": 131},
}
"""What is varied, as `config` takes it."""

UNBUILDABLE = {
    "musicgen": "MusicgenForCausalLM takes the decoder's configuration, which AutoModelForCausalLM does not know",
    "musicgen_melody": "as musicgen",
    "gemma4_assistant": "its forward pass needs the keys and values of another model",
    "gemma4_unified_assistant": "as gemma4_assistant",
}

_WIDTHS = {
    WIDTH: "hidden_size n_embd d_model dim_model embedding_size word_embed_proj_dim conv_dim lru_width"
    " prefix_dense_intermediate_size dense_intermediate_size intermediate_size_mlp input_embedding_size"
    " output_embedding_size pronunciation_embed_dim shape_embed_dim router_hidden_size",
    128: "intermediate_size ffn_hidden_size n_inner ffn_dim d_ff dim_ff dff d_inner encoder_ffn_dim decoder_ffn_dim"
    " mamba_d_ssm feed_forward_size block_ff_dim",
    32: "moe_intermediate_size shared_expert_intermediate_size shared_experts_intermediate_size"
    " shared_intermediate_size expert_ffn_hidden_size moe_shared_expert_intermediate_size expert_intermediate_size"
    " q_lora_rank window_size pronunciation_vocab_size shape_vocab_size",
    HEAD: "head_dim v_head_dim qk_head_dim global_head_dim swa_head_dim swa_v_head_dim kv_lora_rank kv_channels"
    " dim_head index_head_dim mamba_d_state mamba_d_head mamba_head_dim ssm_state_size state_size linear_head_dim"
    " adapter_rank",
    8: "num_experts num_local_experts n_routed_experts moe_num_experts qk_rope_head_dim qk_nope_head_dim"
    " sliding_window attention_window_size mamba_n_heads mamba_num_heads n_mamba_heads mamba_dt_rank mamba_chunk_size"
    " chunk_size time_step_rank linear_num_key_heads linear_num_value_heads linear_num_heads linear_key_head_dim"
    " linear_value_head_dim d_kv hidden_size_per_layer_input index_n_heads index_topk rotary_dim num_heads"
    " position_bias_num_buckets",
    4: "mamba_d_conv linear_conv_kernel_dim laurel_rank",
    2: "num_experts_per_tok moe_topk moe_k top_k_experts num_experts_per_token mamba_expand zero_expert_num",
    1: "first_k_dense_replace n_group topk_group num_expert_group n_shared_experts num_shared_experts mamba_n_groups"
    " n_groups mamba_ngroups bos_token_id num_mem_blocks",
    0: "num_kv_shared_layers pad_token_id num_hash_layers",
    256: "max_position_embeddings n_positions max_target_positions",
}
_COMMON = {name: size for size, names in _WIDTHS.items() for name in names.split()} | {"eos_token_id": 2}
_HEADS = "num_attention_heads n_head n_heads swa_num_attention_heads encoder_attention_heads decoder_attention_heads"
_HEADS += " num_encoder_attention_heads num_decoder_attention_heads num_attention_heads_per_layer"
_KV_HEADS = ("num_key_value_heads", "swa_num_key_value_heads", "num_key_value_heads_swa")
_LAYERS = "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_encoder_layers"
_LAYERS += " num_decoder_layers num_blocks"
_VOCABULARIES = ("vocab_size", "vocab_size_per_layer_input", "unpadded_vocab_size", "decoder_vocab_size")

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_TWO_ROPES = {"rope_parameters": {"sliding_attention": _ROPE, "full_attention": _ROPE}}
_GEMMA4 = {"layer_types": ["sliding_attention", "full_attention"], "global_head_dim": 32}
_INKLING2 = {"d_rel": 8, "rel_extent": 16, "n_layers_per_attn_res_block": 2}
_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_BLT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8}
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "blt": {
        "num_hidden_layers": 2,
        "encoder_hash_byte_group_vocab": 32,
        "patcher_config": _BLT,
        "encoder_config": {**_BLT, "hidden_size_global": 128},
        "decoder_config": {**_BLT, "hidden_size_global": 128},
        "global_config": {**_BLT, "hidden_size": 128},
    },
    "cohere_compass_text": _TWO_ROPES,
    "deepseek_v4": {"o_lora_rank": 16},
    # the sliding layers have heads and ranks of their own
    "dots3_note_text": {"per_layer_config": {1: {"head_dim": 16, "kv_lora_rank": 32, "v_head_dim": 8}}},
    "dory": {
        "n_input_layers": 1,
        "n_output_layers": 1,
        "num_hidden_layers": 4,
        "n_recurrent_layers": 2,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma3n_text": {"intermediate_size": 128},
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "git": {"vision_config": {**_TOWER, "image_size": 28, "patch_size": 14}},
    "got_ocr2": {"vision_config": {**_TOWER, "output_channels": 16, "image_size": 64, "mlp_dim": 64, "window_size": 2}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "helium": {"head_dim": 8},
    "inkling2_loop_text": _INKLING2,
    "inkling2_text": _INKLING2,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "lfm2": {"block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "full_attention"],
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
    },
    "longcat_flash": {"zero_expert_type": "identity"},
    "moss_transcribe_diarize": {"audio_config": {**_TOWER, "max_source_positions": 64}},
    "phi4_multimodal": {
        "vision_config": {**_TOWER, "image_size": 28, "patch_size": 14, "crop_size": 28},
        "audio_config": {
            **_TOWER,
            "num_blocks": 1,
            "ext_pw_out_channel": 32,
            "depthwise_separable_out_channel": 32,
            "nemo_conv_channels": 16,
            "input_size": 16,
        },
        "rope_parameters": None,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "hc_lowrank": 16,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 2,
        "heads_per_ngram": 2,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {
        "axial_pos_embds": False,
        "attention_head_size": 8,
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "hash_seed": 0,
    },
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}
_OWN_LAYER_TYPES = ("bamba", "falcon_h1", "jamba", "recurrent_gemma")
"""These make their layer_types from other settings."""


def mapped() -> list[str]:
    """The model types of causal language models; not those around a *_text type, which is the same decoder."""
    types = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return [name for name in types if f"{name}_text" not in types]


def config(
    model_type: str,
    *,
    heads: int = 8,
    kv_heads: int = 4,
    tied: bool = False,
    vocabulary: int = VOCABULARY,
    **changes: Any,
) -> PreTrainedConfig:
    """A tiny configuration. What an architecture does not know, such as KV heads of its own, it does not get.

    Args:
        changes: set as they are.
    """
    return _config(CONFIG_MAPPING[model_type], heads, kv_heads, tied, vocabulary, changes)


def _config(kind: Any, heads: int, kv_heads: int, tied: bool, vocabulary: int, changes: dict[str, Any]) -> Any:
    default = kind()
    # An alias is set by the setting's own name, because some architectures read it before aliases are resolved.
    known = dict(kind.attribute_map or {}) | {field.name: field.name for field in dataclasses.fields(kind)}
    settings = {
        **_COMMON,
        **dict.fromkeys(_HEADS.split(), heads),
        **dict.fromkeys(_KV_HEADS, kv_heads),
        **dict.fromkeys(_LAYERS.split(), 2),
        **dict.fromkeys(_VOCABULARIES, vocabulary),
        **_layer_types(default),
    }
    if vars(default).get("kv_lora_rank") is not None:  # multi-head latent attention has no KV heads
        settings |= {**dict.fromkeys(_KV_HEADS, heads), "head_dim": 8}
    settings = {
        known[name]: value for name, value in settings.items() if name in known and _settable(default, name, value)
    }
    text = (kind.sub_configs or {}).get("text_config")
    if text is not None:
        inner = text if dataclasses.is_dataclass(text) and text.model_type else type(default.text_config)
        settings = {"text_config": _config(inner, heads, kv_heads, tied, vocabulary, {})}
    settings["tie_word_embeddings"] = tied
    if "is_decoder" in known:
        settings["is_decoder"] = True
    settings |= _own_kv_heads(kind.model_type, kv_heads)
    return kind(**settings | SPECIAL.get(kind.model_type, {}) | changes)


def _own_kv_heads(model_type: str, kv_heads: int) -> dict[str, Any]:
    """The number of KV heads, where it is not set under one of the usual names."""
    match model_type:
        case "dbrx":
            ffn = {"hidden_size": WIDTH, "ffn_hidden_size": 128, "moe_num_experts": 8, "moe_top_k": 2}
            return {"attn_config": {"kv_n_heads": kv_heads, "rope_theta": 10000.0, "clip_qkv": 8.0}, "ffn_config": ffn}
        case "falcon":
            grouped = {"num_kv_heads": kv_heads, "new_decoder_architecture": True}
            return grouped if kv_heads > 1 else {"multi_query": True}
        case "gpt_bigcode":
            return {"multi_query": kv_heads == 1}
    return {}


def _settable(default: Any, name: str, value: Any) -> bool:
    """Whether a shared setting means the same here: not where it is one per layer, or off unless asked for."""
    before = vars(default).get(name)  # not getattr, which refuses what may differ between layers
    if isinstance(before, (list, tuple, dict)) and not isinstance(value, list):
        return False
    return not (name == "q_lora_rank" and before is None)


def _layer_types(default: Any) -> dict[str, Any]:
    """One layer of each kind, and as many layers."""
    if default.model_type in _OWN_LAYER_TYPES:
        return {}
    settings: dict[str, Any] = {}
    kinds = list(dict.fromkeys(getattr(default, "layer_types", None) or ()))
    count = max(2, len(kinds))
    if kinds:
        settings |= {"layer_types": (kinds * 2)[:count], **dict.fromkeys(_LAYERS.split(), count)}
    blocks = list(dict.fromkeys(getattr(default, "mlp_layer_types", None) or ()))
    if blocks:
        settings["mlp_layer_types"] = (blocks + blocks[-1:] * count)[:count]
    return settings


@cache
def has_plan(model_type: str) -> bool:
    """Whether transformers has a tensor-parallel plan for the type."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(model_type))
    return bool(model.tp_plan)


def save(model_type: str, folder: Path, **settings: Any) -> None:
    """Write a random model, the same one each time, and beside it in reference.pt what it gives when it is whole.

    reference.pt holds: ids; logits; tokens and static (what `generate` gives with the usual and with a static cache)
    and gradients of a loss, each None where the whole model cannot; tied; bytes.
    """
    made = config(model_type, **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    _randomise(model)
    model.save_pretrained(folder)
    made.architectures = [type(model).__name__]
    made.save_pretrained(folder)  # where the model has only the decoder's part, AutoModelForCausalLM needs the whole
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.save(_reference(whole), folder / "reference.pt")


def _randomise(model: torch.nn.Module) -> None:
    """Weights that leave the signal's size alone, and norms and biases that differ from each other."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(noise * 0.1)
            else:
                parameter.copy_(noise if "embed" in name else noise * parameter.shape[-1] ** -0.5)


def _reference(model: Any) -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(ids).logits
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    return {
        "ids": ids,
        "logits": logits,
        "tokens": attempt(generate, model, ids),
        "static": attempt(generate, model, ids, cache_implementation="static"),
        "gradients": attempt(gradients, model, ids),
        "tied": inputs is not None and outputs is not None and inputs.weight is outputs.weight,
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
    }


def attempt(function: Any, *arguments: Any, **options: Any) -> Any:
    """What a function returns, or None if it raises: not every model can do everything."""
    try:
        return function(*arguments, **options)
    except Exception:  # noqa: BLE001 - whatever the model raises
        return None


def generate(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """Six greedy tokens behind the first six of `ids`."""
    return model.generate(ids[:, :6], max_new_tokens=6, min_new_tokens=6, do_sample=False, pad_token_id=0, **options)


def gradients(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of a loss by parameter, whole."""
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in found.items()}
