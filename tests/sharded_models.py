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
    return model.generate(
        tiny_models.prompt(), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, **options
    ).tolist()


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
    tokens = generate(reference)
    result = {
        "device": str(model.device),
        "error": ((logits(model) - expected).abs().max() / expected.abs().max()).item(),
        "held": held / sum(parameter.numel() for parameter in reference.parameters()),
        "same_tokens": generate(model) == tokens,
        "same_tokens_static": generate(model, cache_implementation="static") == tokens,
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
