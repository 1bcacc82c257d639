"""Compiled graphs that hold collectives."""

from __future__ import annotations

from typing import Any

import torch

from accelhub.messages import say_once
from accelhub_tpu.emulation.targets import LABEL


class EagerCollectives(torch.nn.Module):
    """The piece of a compiled graph that holds a collective: run operator by operator, and said.

    Part of what torch's compilation cache stores, so that a graph from the cache says it too.
    """

    def __init__(self, piece: torch.nn.Module) -> None:
        super().__init__()
        self.piece = piece

    def forward(self, *args: Any) -> Any:
        say_once(f"{LABEL}: compiled graphs break at collectives, which run through gloo")
        return self.piece(*args)
