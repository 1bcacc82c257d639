"""Tiny models of ten architectures: logits and tokens equal the CPU's."""

import pytest
import torch
from transformers import AutoModelForCausalLM

import accelhub
import tiny_models

ARCHITECTURES = ["qwen3", "llama", "gemma3_text", "glm4", "phi3", "mamba2", "gpt2", "qwen3_moe", "mixtral", "gpt_oss"]
NEW_TOKENS = 6


def generate(model, **options):
    return model.generate(
        tiny_models.prompt(), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, **options
    ).cpu()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_and_logits_equal_the_cpus(architecture, tmp_path):
    folder = tiny_models.save(architecture, tmp_path)
    reference = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu").eval()
    model = AutoModelForCausalLM.from_pretrained(folder, device_map=accelhub.auto()).eval()
    assert model.device.type == "tpu"
    with torch.no_grad():
        expected = reference(tiny_models.prompt()).logits
        logits = model(tiny_models.prompt().to(model.device)).logits.cpu()
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()
    tokens = generate(reference)
    assert torch.equal(generate(model), tokens)
    assert torch.equal(generate(model, cache_implementation="static"), tokens)
