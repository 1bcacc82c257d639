"""Operators whose TPU lowering XLA:CPU cannot run, written with others that it can.

They replace torch_tpu's kernels in the dispatcher, so that eager code, compiled graphs and gradients all use them.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch

from accelhub.messages import say_once
from accelhub_tpu.emulation.targets import LABEL

_library = torch.library.Library("aten", "IMPL")


@cache
def override() -> None:
    """Register the replacements, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a kernel is replaced, which is the purpose
        _library.impl("cumsum", cumsum, "PrivateUse1")
        _library.impl("_grouped_mm", grouped_mm, "PrivateUse1")


def cumsum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`aten::cumsum`, whose `chlo.scan` aborts the process on XLA:CPU: a triangle of ones selects what is summed.

    Needs O(n^2) memory in the length n of the dimension.
    """
    whole = not (self.dtype.is_floating_point or self.dtype.is_complex)
    result = dtype or (torch.int64 if whole else self.dtype)
    values = self.to(result)
    if values.dim() == 0:
        return values.clone()
    values = values.movedim(dim, -1)
    length = values.shape[-1]
    keep = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
    zero = torch.zeros((), dtype=result, device=self.device)
    summed = torch.where(keep, values.unsqueeze(-2), zero).sum(-1, dtype=result)
    return summed.movedim(-1, dim)


def grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`aten::_grouped_mm`, whose ragged-dot XLA:CPU does not have: one dense product per group, masked to its rows.

    Args:
        self, mat2: (M, K) x (G, K, N), (G, M, K) x (K, N), (M, K) x (K, N) or (G, M, K) x (G, K, N).
        offs: (G,), where each group ends along the ragged dimension: M, N, K, or none.
    """
    say_once(f"{LABEL}: mixture-of-experts layers multiply every row by every expert, since XLA:CPU has no ragged-dot")
    if offs is None:
        product = torch.bmm(self, mat2)
    elif self.dim() == 2 and mat2.dim() == 3:
        product = torch.bmm(self * _members(offs, self.shape[0]).unsqueeze(-1).to(self.dtype), mat2).sum(0)
    elif self.dim() == 3 and mat2.dim() == 2:
        product = torch.bmm(self, mat2 * _members(offs, mat2.shape[1]).unsqueeze(1).to(mat2.dtype)).sum(0)
    else:
        product = torch.bmm(self * _members(offs, self.shape[1]).unsqueeze(1).to(self.dtype), _repeat(mat2, offs))
    if bias is not None:
        product = product + bias
    return product if out_dtype is None else product.to(out_dtype)


def _members(offs: torch.Tensor, length: int) -> torch.Tensor:
    """(G, length): whether an index belongs to a group."""
    index = torch.arange(length, device=offs.device)
    ends = offs.to(index.dtype)
    starts = torch.cat([torch.zeros(1, dtype=ends.dtype, device=ends.device), ends[:-1]])
    return (index >= starts.unsqueeze(-1)) & (index < ends.unsqueeze(-1))


def _repeat(matrix: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return matrix.unsqueeze(0).expand(offs.shape[0], *matrix.shape)
