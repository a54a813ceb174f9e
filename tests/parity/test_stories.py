"""nereus decodes stories260K greedily to the text that its authors published, under several layouts."""

import json
import os
import pathlib
import subprocess

import pytest
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NEREUS_PARITY", str(ROOT / "build/release/apps/parity/nereus_parity"))
STORIES = ROOT / "assets" / "stories260K"

# The beginning of llama2.c's doc/stories260K.md (test_data.py has all of it).
PUBLISHED = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    'Lily\'s mom said, "Lily, let\'s go to the park." Lily was sad and didn\'t know what to do. '
    'She said, "I want to play with your ball, but I can\'t find it."\n'
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\n"
    "Lily didn't want to help her mom, so she said, \"I'm sorry, mom. I didn't know what to do.\" "
    'Her mom said, "Don\'t worry, Lily. We can help you.'
)


@pytest.mark.parametrize("tp, pp", [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_greedy_text_is_the_published_one(tp, pp, tmp_path):
    tokenizer = Tokenizer.from_file(str(STORIES / "tokenizer.json"))
    prompt = tokenizer.encode("Once upon a time").ids
    request = dict(tp=tp, pp=pp, dp=1, dtype="float32", max_new_tokens=257 - len(prompt),
                   samples=[dict(prompt=prompt, response=[1])])
    (tmp_path / "request.json").write_text(json.dumps(request))
    subprocess.run([PROGRAM, STORIES, tmp_path / "request.json", tmp_path], check=True, timeout=300)
    tokens = json.loads((tmp_path / "greedy.json").read_text())[0]
    assert tokenizer.decode(prompt + tokens) == PUBLISHED
