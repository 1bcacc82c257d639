"""Run by test_smollm2.py: the answer of a chat model, with both caches. Usage: answer.py MODEL OUTPUT"""

import json
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import accelhub

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
chat = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], device_map=accelhub.auto())
tokens = {
    name: model.generate(**prompt, max_new_tokens=8, do_sample=False, **options)[
        0, prompt["input_ids"].shape[1] :
    ].tolist()
    for name, options in {"dynamic": {}, "static": {"cache_implementation": "static"}}.items()
}
result = {"tokens": tokens, "text": tokenizer.decode(tokens["dynamic"]), "device": str(model.device)}
Path(sys.argv[2], f"{accelhub.rank()}.json").write_text(json.dumps(result))
