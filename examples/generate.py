"""Answers a question. Usage: accelhub launch generate.py MODEL [QUESTION]"""

import sys
import time

from transformers import AutoModelForCausalLM, AutoTokenizer

import accelhub

path, question = sys.argv[1], (sys.argv[2:] or ["What is the capital of France?"])[0]
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path, device_map=accelhub.auto())
chat = [{"role": "user", "content": question}]
prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
start = time.perf_counter()
answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
speed = len(answer) / (time.perf_counter() - start)
if accelhub.rank() == 0:
    print(tokenizer.decode(answer, skip_special_tokens=True))
    print(f"{speed:.2f} tokens/s on {model.device}: {accelhub.platform()}")
