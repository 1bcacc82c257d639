"""Run on several chips by tests: one optimiser step of a sharded model, held against the same step of a whole copy.

Usage: sharded_training.py FOLDER FSDP_SIZE CASE..., where FOLDER/CASE holds the model. Writes FOLDER/CASE.RANK.json.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import accelhub
import tiny_models

STEPS = 2


def whole(tensor):
    """A parameter, gathered from all chips, on the CPU."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu()


def train(model):
    """A few steps of AdamW; returns the loss and the gradients of the first."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = tiny_models.prompt().to(model.device)
    first = None
    for _ in range(STEPS):
        loss = model(ids, labels=ids).loss
        loss.backward()
        first = first or (
            loss.item(),
            {name: whole(parameter.grad) for name, parameter in model.named_parameters() if parameter.grad is not None},
        )
        optimizer.step()
        optimizer.zero_grad()
    return first


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    scale = max(tensor.abs().max() for tensor in expected.values())
    return max(((found[name] - expected[name]).abs().max() / scale).item() for name in expected)


def check(folder, case, fsdp_size):
    saved = folder / case
    reference = AutoModelForCausalLM.from_pretrained(saved, device_map="cpu")
    model = AutoModelForCausalLM.from_pretrained(saved, **accelhub.shard(saved, fsdp_size=fsdp_size))
    model.save_pretrained(folder / f"{case}.saved")  # every rank takes part, rank 0 writes
    loss, gradients = train(model)
    expected_loss, expected_gradients = train(reference)
    result = {
        "loss_error": abs(loss - expected_loss) / expected_loss,
        "gradient_error": largest_difference(gradients, expected_gradients),
        "parameter_error": largest_difference(
            {name: whole(parameter) for name, parameter in model.named_parameters()},
            {name: parameter.detach() for name, parameter in reference.named_parameters()},
        ),
    }
    torch.distributed.barrier()
    original = AutoModelForCausalLM.from_pretrained(saved, device_map="cpu").state_dict()
    reloaded = AutoModelForCausalLM.from_pretrained(folder / f"{case}.saved", device_map="cpu").state_dict()
    result["saved_alike"] = all(torch.equal(reloaded[name], tensor) for name, tensor in original.items())
    return result


if __name__ == "__main__":
    target, fsdp = Path(sys.argv[1]), int(sys.argv[2])
    for name in sys.argv[3:]:
        (target / f"{name}.{accelhub.rank()}.json").write_text(json.dumps(check(target, name, fsdp)))
