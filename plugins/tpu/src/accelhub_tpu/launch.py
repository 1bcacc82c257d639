"""Variables of a TPU launch: torch_tpu's own where real chips are, the emulation's where none are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelhub.types import LaunchSpec, Variable
from accelhub_tpu import adapter
from accelhub_tpu.chips import BY_KIND
from accelhub_tpu.emulation.environment import variables as emulated


def launch_env(spec: LaunchSpec, environ: Mapping[str, str]) -> Sequence[Variable]:
    if spec.emulation is not None:
        return emulated(environ)
    topology = BY_KIND[spec.found.kind].topologies[spec.chips]
    found = adapter.launch_environment(spec.processes, {"TORCH_TPU_TOPOLOGY": topology, **environ})
    return [Variable(name, value, "torch_tpu's set_tpu_launch_env: the slice") for name, value in found.items()]
