"""What torch_tpu's compiler wants."""

from typing import Final

from accelhub.types import CompileSettings

# Backend and `dynamic=False`: torch_tpu 0.2.0, _loader.py. 128: the lanes of a vector register, NUM_LANES in
# jax/_src/pallas/mosaic/tpu_info.py of jax 0.10.2. No dtype is listed as unsupported: torch_tpu names float64 and
# complex128 among its own (_device_module.py), and what a chip makes of them has not been seen.
SETTINGS: Final = CompileSettings(backend="tpu", dynamic=False, mode="default", padding_multiple=128)
