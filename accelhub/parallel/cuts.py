"""Which part of a parameter a chip holds under a style.

The rules are those of torch's and transformers' shards: the first chips take ceil(n / chips) of a dimension each, the
last ones what is left, perhaps nothing. `make tp-scan` compares the bytes that follow with what was loaded.
"""

from __future__ import annotations

import math
from typing import Any, Final

from accelhub.parallel.names import Style

_OUTPUTS: Final = {
    **dict.fromkeys((Style.COLWISE, "colwise", "colwise_gather_output", "colwise_rep"), 1),
    "packed_colwise": 2,
    Style.COLWISE_HALVES: 2,
    Style.COLWISE_THIRDS: 3,
}
_INPUTS: Final = {
    **dict.fromkeys((Style.ROWWISE, Style.ROWWISE_COPY, "rowwise", "rowwise_split_input", "rowwise_rep"), 1),
    "packed_rowwise": 2,
}
_DIMENSIONS: Final = {"embedding_rowwise": 0, Style.EMBEDDING_COPY: 0, "embedding_colwise": 1, "grouped_gemm": 0}


def cut(tensor: Any, name: str, style: str | None, splits: int, part: int, transposed: bool = False) -> Any:
    """One of `splits` parts of a parameter.

    Args:
        tensor: the whole parameter; on the meta device only its shape is cut.
        name: the parameter's own name: a bias is whole where the inputs are split.
        style: the style it falls under in the plan.
        transposed: the weight is stored (in, out), as Conv1D does, not (out, in).
    """
    import torch

    vector = tensor.ndim == 1
    if style in _OUTPUTS:
        dimension = 0 if vector else -2
        # transformers cuts the bias of a fused layer as one piece
        pieces = 1 if vector and style == "packed_colwise" else _OUTPUTS[style]
    elif style in _INPUTS and not (vector and (name == "bias" or _INPUTS[style] > 1)):
        dimension, pieces = -1, _INPUTS[style]
    elif style in _DIMENSIONS and tensor.ndim:
        dimension, pieces = _DIMENSIONS[style], 1
    else:
        return tensor
    if transposed and not vector:
        dimension = -1 if dimension == -2 else -2
    each = math.ceil(tensor.shape[dimension] / pieces)
    shares = []
    for piece in tensor.split(each, dimension):
        size = math.ceil(piece.shape[dimension] / splits)
        start = min(size * part, piece.shape[dimension])
        shares.append(piece.narrow(dimension, start, min(size, piece.shape[dimension] - start)))
    return shares[0] if len(shares) == 1 else torch.cat(shares, dimension)


def is_transposed(module: Any) -> bool:
    """Whether the module is a Conv1D of transformers: a linear layer whose weight is stored (in, out)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")
