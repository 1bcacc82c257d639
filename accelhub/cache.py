"""Where accelhub keeps what is slow to make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """`ACCELHUB_CACHE_DIR`, else the user's cache folder (XDG). Not created here."""
    chosen = environ.get("ACCELHUB_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "accelhub"
