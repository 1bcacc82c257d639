"""Variables of an emulated process."""

from __future__ import annotations

from collections.abc import Mapping

from accelhub.cache import cache_dir
from accelhub.types import Variable


def variables(environ: Mapping[str, str]) -> list[Variable]:
    graphs = cache_dir(environ) / "emulated-tpu-graphs"
    return [
        Variable("TF_CPP_MIN_LOG_LEVEL", "2", "keeps XLA's information lines out of the script's output"),
        Variable("TORCHINDUCTOR_CACHE_DIR", str(graphs), "keeps graphs compiled for a CPU from ever reaching a TPU"),
    ]
