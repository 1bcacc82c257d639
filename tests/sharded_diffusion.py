"""Run on several chips by tests: diffusion models sharded by accelhub, held against one whole copy on the CPU.

Usage: sharded_diffusion.py FOLDER CASE..., where FOLDER/CASE holds a model or a pipeline. Writes FOLDER/CASE.RANK.json.
"""

import json
import sys
from pathlib import Path

import diffusers
import torch
from torch.distributed.tensor import DTensor

import accelhub
from accelhub.parallel.diffusion import diffusion_arguments

ABSENT = dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))


def shard(model):
    return diffusion_arguments(model, accelhub.world_size())


def inputs(case, device):
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    text = random(1, 7, 32)
    if case == "pipeline":
        embeds = {"prompt_embeds": text, "pooled_prompt_embeds": random(1, 32), "latents": random(1, 16, 16)}
        return embeds | {"height": 8, "width": 8, "num_inference_steps": 2, "output_type": "latent"}
    shared = {"hidden_states": random(1, 16, 16), "encoder_hidden_states": text, "timestep": random(1)}
    if case == "qwenimage":
        return shared | {"encoder_hidden_states_mask": torch.ones(1, 7).to(device), "img_shapes": [(1, 4, 4)]}
    image = torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0)).to(device)
    return shared | {"pooled_projections": random(1, 32), "img_ids": image, "txt_ids": torch.zeros(7, 3).to(device)}


@torch.no_grad()
def output(case, model, device):
    return model(**inputs(case, device))[0].cpu()


def load(case, folder, **arguments):
    if case == "pipeline":
        pipeline = diffusers.DiffusionPipeline.from_pretrained(folder, **ABSENT, **arguments)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline
    return diffusers.AutoModel.from_pretrained(folder, **arguments)


def sizes(model):
    """Numbers of parameters: all, those that are split, and of both what this rank holds."""
    held = split = held_split = whole = 0
    for parameter in model.parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        whole, held = whole + parameter.numel(), held + local.numel()
        if local.numel() < parameter.numel():
            split, held_split = split + parameter.numel(), held_split + local.numel()
    return {"held": held / whole, "split": split / whole, "held_split": held_split / split}


def check(folder, case):
    here = accelhub.device()
    expected = output(case, load(case, folder), "cpu")
    loaded = load(case, folder, **shard(folder)).to(here)
    enabled = load(case, folder)
    getattr(enabled, "transformer", enabled).enable_parallelism(**shard(enabled))
    errors = [
        ((output(case, model, here) - expected).abs().max() / expected.abs().max()).item()
        for model in (loaded, enabled.to(here))
    ]
    devices = {str(parameter.device) for parameter in getattr(loaded, "transformer", loaded).parameters()}
    return {"errors": errors, "devices": sorted(devices)} | sizes(getattr(loaded, "transformer", loaded))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name in sys.argv[2:]:
        result = check(str(target / name), name)
        (target / f"{name}.{accelhub.rank()}.json").write_text(json.dumps(result))
