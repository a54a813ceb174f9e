"""A reward function written in Python, in a whole run."""

import json

from program import ROOT, SMALL, run, write_config

REWARD = "reward: {name: vader_sentiment, lexicon: assets/vader/vader_lexicon.txt, sign: -1}"


def config(tmp_path, path, more=""):
    text = SMALL.replace(REWARD, f"custom_reward_function: {{path: {path}{more}}}")
    return write_config(tmp_path, text)


def test_the_example_scores_a_run(tmp_path):
    file = config(tmp_path, ROOT / "examples/custom_reward.py")
    assert run("check", file).returncode == 0
    done = run("train", file, "--run-dir", tmp_path / "run", "trainer.total_training_steps=2",
               f"trainer.rollout_data_dir={tmp_path / 'rollouts'}")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert row["reward/words_per_sentence/mean"] > 0
        assert row["critic/score/mean"] <= 0
        assert row["reward/failures"] == 0
    kept = [json.loads(line) for line in (tmp_path / "rollouts/2.jsonl").read_text().splitlines()]
    assert len(kept) == 8 and {row["step"] for row in kept} == {2}
    assert all(row["input"] and row["output"] for row in kept)
    assert abs(sum(row["score"] for row in kept) / 8 - rows[1]["critic/score/mean"]) < 1e-9


def test_a_reward_that_raises_stops_the_run_and_says_why(tmp_path):
    (tmp_path / "bad.py").write_text("def compute_score(**row):\n    raise ValueError('no answer in the row')\n")
    done = run("train", config(tmp_path, tmp_path / "bad.py"), "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert "no answer in the row" in done.stderr


def test_check_finds_a_missing_function(tmp_path):
    (tmp_path / "other.py").write_text("def score(**row):\n    return 1\n")
    refused = run("check", config(tmp_path, tmp_path / "other.py"))
    assert refused.returncode == 2
    assert "custom_reward_function.name" in refused.stderr
    assert run("check", config(tmp_path, tmp_path / "other.py", ", name: score")).returncode == 0
