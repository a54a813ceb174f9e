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

# llama2.c's doc/stories260K.md: 256 tokens.
PUBLISHED = (ROOT / "tests" / "published_story.txt").read_text()


@pytest.mark.parametrize("tp, pp", [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_greedy_text_is_the_published_one(tp, pp, tmp_path):
    tokenizer = Tokenizer.from_file(str(STORIES / "tokenizer.json"))
    prompt = tokenizer.encode("Once upon a time").ids
    request = dict(tp=tp, pp=pp, dp=1, dtype="float32", max_new_tokens=257 - len(prompt),
                   samples=[dict(prompt=prompt, response=[1])])
    (tmp_path / "request.json").write_text(json.dumps(request))
    subprocess.run([PROGRAM, STORIES, tmp_path / "request.json"], check=True, timeout=300)
    tokens = json.loads((tmp_path / "request" / "greedy.json").read_text())[0]
    assert tokenizer.decode(prompt + tokens) == PUBLISHED
