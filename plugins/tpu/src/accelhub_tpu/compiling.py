"""What torch_tpu's compiler wants."""

from typing import Final

from accelhub.types import CompileSettings

# `dynamic=False` and the backend's name: torch_tpu 0.2.0, _loader.py. Padding to the 128 lanes of a vector register:
# "Pallas TPU details" in the JAX documentation. float64 is computed in software, complex128 not at all.
SETTINGS: Final = CompileSettings(
    backend="tpu",
    dynamic=False,
    mode="default",
    padding_multiple=128,
    unsupported_dtypes=("float64", "complex128"),
)
