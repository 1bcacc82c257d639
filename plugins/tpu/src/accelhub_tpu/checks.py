"""Doctor checks of the TPU plugin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelhub.types import Absent, Finding
from accelhub_tpu.discovery import discover, torch_tpu_version


def checks(root: Path) -> Sequence[Finding]:
    version = torch_tpu_version()
    result = discover(root)
    chips = (
        Finding("TPU chips", ok=False, evidence=result.reason, remedy=result.remedy)
        if isinstance(result, Absent)
        else Finding(
            "TPU chips", ok=not result.problem, evidence=f"{result.chips} x {result.kind}", remedy=result.problem
        )
    )
    package = (
        Finding("torch_tpu", ok=True, evidence=f"torch_tpu {version} is installed")
        if version
        else Finding("torch_tpu", ok=False, evidence="not installed", remedy="pip install 'accelhub-tpu[torch]'")
    )
    return [package, chips]
