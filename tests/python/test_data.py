"""The shipped assets against transformers: stories260K speaks as published, the digit prompts are verl's."""

import json
import pathlib

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "assets"
STORIES = ASSETS / "stories260K"

torch.set_num_threads(1)  # faster than several for so small a model

# llama2.c's doc/stories260K.md: `./run stories260K.bin -z tok512.bin -t 0.0`, 256 tokens.
PUBLISHED = (pathlib.Path(__file__).resolve().parents[1] / "published_story.txt").read_text()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(STORIES)


@pytest.mark.parametrize("prompt", ["", "Once upon a time"])
def test_greedy_text_is_the_published_one(tokenizer, prompt):
    model = LlamaForCausalLM.from_pretrained(STORIES)
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        output = model.generate(tokens, do_sample=False, max_length=257)
    assert tokenizer.decode(output[0], skip_special_tokens=True) == PUBLISHED


def llama2c_encode(vocabulary, scores, text):
    """llama2.c's encode(): characters, then always the merge with the best score, leftmost first."""
    tokens = [vocabulary["\u2581"]] if text else []
    for character in text.replace(" ", "\u2581"):
        if character in vocabulary:
            tokens.append(vocabulary[character])
        else:
            tokens += [byte + 3 for byte in character.encode()]
    pieces = {token: piece for piece, token in vocabulary.items()}
    while True:
        best = None
        for i in range(len(tokens) - 1):
            merged = vocabulary.get(pieces[tokens[i]] + pieces[tokens[i + 1]])
            if merged is not None and (best is None or scores[merged] > scores[best[1]]):
                best = (i, merged)
        if best is None:
            return [1] + tokens
        tokens[best[0] : best[0] + 2] = [best[1]]


def test_tokens_are_those_of_llama2c(tokenizer):
    model = json.loads((STORIES / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    # Only the order of scores matters: the rank of a piece is that of its first merge.
    scores = {}
    for rank, (left, right) in enumerate(model["merges"]):
        scores.setdefault(model["vocab"][left + right], -rank)
    for text in [PUBLISHED, "Once upon a time", "a", " two  spaces ", "Zürich — 5 €", "don't\n\nstop"]:
        assert tokenizer(text).input_ids == llama2c_encode(model["vocab"], scores, text), text
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_digit_prompts_have_the_answers_of_the_task():
    rows = [
        json.loads(line)
        for name in ("train", "test")
        for line in (ASSETS / "digits" / f"{name}.jsonl").read_text().splitlines()
    ]
    assert len(rows) == 1000
    for row in rows:
        numbers, limits = row["prompt"].split(":")
        first, second = map(int, numbers.split(","))
        maximum, count = map(int, limits.split(","))
        answer, last = [], second
        for _ in range(count):
            last = (last + second - first) % maximum
            answer.append(str(last))
        assert row["answer"] == ",".join(answer), row
