"""Run on several chips by tests: models sharded by `accelhub.auto()`, held against one whole copy on the CPU.

Usage: sharded_models.py FOLDER CASE..., where FOLDER/CASE holds the model. Writes FOLDER/CASE.RANK.json.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import accelhub
import tiny_models

NEW_TOKENS = 6


def generate(model, **options):
    """Greedy tokens, and over how many KV heads the cache of the first layer goes on this chip."""
    result = model.generate(
        tiny_models.prompt(),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        **options,
    )
    return result.sequences.tolist(), result.past_key_values.layers[0].keys.shape[1]


def logits(model):
    with torch.no_grad():
        result = model(tiny_models.prompt().to(model.device)).logits
    return (result.full_tensor() if hasattr(result, "full_tensor") else result).cpu()


def gradients(model):
    """Gradients of a loss, whole, on the CPU, by parameter."""
    ids = tiny_models.prompt().to(model.device)
    model(ids, labels=ids).loss.backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {name: (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).cpu() for name, grad in grads.items()}


def check(folder, case):
    saved = folder / case
    reference = AutoModelForCausalLM.from_pretrained(saved, device_map="cpu").eval()
    model = AutoModelForCausalLM.from_pretrained(saved, device_map=accelhub.auto()).eval()
    expected = logits(reference)
    held = sum(
        parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel()
        for parameter in model.parameters()
    )
    tokens, _ = generate(reference)
    dynamic, dynamic_heads = generate(model)
    static, static_heads = generate(model, cache_implementation="static")
    chunked, chunked_heads = generate(model, cache_implementation="static", prefill_chunk_size=3)
    result = {
        "device": str(model.device),
        "error": ((logits(model) - expected).abs().max() / expected.abs().max()).item(),
        "held": held / sum(parameter.numel() for parameter in reference.parameters()),
        "same_tokens": dynamic == tokens,
        "same_tokens_static": static == tokens,
        "same_tokens_chunked": chunked == tokens,
        "cached_heads": [dynamic_heads, static_heads, chunked_heads],
    }
    whole, sharded = gradients(reference), gradients(model)
    largest = max(gradient.abs().max() for gradient in whole.values())
    assert whole.keys() == sharded.keys()
    result["gradient_error"] = max(((sharded[name] - whole[name]).abs().max() / largest).item() for name in whole)
    return result


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name in sys.argv[2:]:
        (target / f"{name}.{accelhub.rank()}.json").write_text(json.dumps(check(target, name)))
