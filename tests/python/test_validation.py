"""Validation on prompts of their own: when, what is recorded, and that the training is the same."""

import json

import pytest
from safetensors.numpy import load_file

from program import run, write_config

SCORE = "val-core/unknown/reward/mean@1"
EVERY_TWO = ("data.val_files=assets/prompts/stories.jsonl", "trainer.test_freq=2")


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def train(tmp_path, name, *overrides):
    done = run("train", write_config(tmp_path), "--run-dir", tmp_path / name,
               "trainer.total_training_steps=3", *overrides)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(directory):
    """The metrics of the steps, without what a clock or a memory account said."""
    return [{key: value for key, value in line.items()
             if not key.startswith(("timing", "perf/", "val-", "wall_s", "peak_bytes"))}
            for line in lines(directory / "metrics.jsonl")]


def validated_steps(directory):
    return [line["step"] for line in lines(directory / "metrics.jsonl") if SCORE in line]


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("validated")
    output = train(tmp_path, "run", *EVERY_TWO)
    return tmp_path / "run", output


def test_every_so_many_steps_and_after_the_last(validated):
    directory, output = validated
    assert validated_steps(directory) == [1, 2]
    before = [event for event in lines(directory / "events.jsonl") if event["type"] == "validation"]
    assert len(before) == 1 and SCORE in before[0]["metrics"]
    assert output.count("validation: reward") == 3
    for line in lines(directory / "metrics.jsonl")[1:]:
        assert 1 <= line["val-aux/response_length/mean"] <= 8 and line[SCORE] != 0
        assert line["timing_s/testing"] > 0
        passes = sum(line[f"timing_s/{name}"] for name in ("gen", "update_actor", "update_critic"))
        assert passes < line["timing_s/step"]


def test_the_training_is_the_same_without(validated, tmp_path):
    directory, _ = validated
    output = train(tmp_path, "plain")
    assert "validation" not in output
    assert trained(tmp_path / "plain") == trained(directory)
    for part in ("actor", "critic"):
        file = f"checkpoints/step_3/{part}.safetensors"
        expected, found = load_file(tmp_path / "plain" / file), load_file(directory / file)
        assert expected and expected.keys() == found.keys()
        assert all((expected[name] == found[name]).all() for name in expected)


def test_a_resumed_run_validates_at_the_same_steps(validated, tmp_path):
    directory, _ = validated
    train(tmp_path, "run", *EVERY_TWO, "trainer.total_training_steps=1", "trainer.test_freq=-1")
    output = train(tmp_path, "run", *EVERY_TWO, "--resume")
    assert output.count("validation: reward") == 2, "none before the step it goes on with"
    assert validated_steps(tmp_path / "run") == [1, 2]
    scores = [[line[SCORE] for line in lines(run_ / "metrics.jsonl")[1:]]
              for run_ in (directory, tmp_path / "run")]
    assert scores[0] == scores[1]


def test_tensorboard_has_the_score_before_training_at_step_0(validated):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(validated[0] / "tb")).Reload()
    assert [point.step for point in events.Scalars(SCORE)] == [0, 2, 3]


def test_check_tries_the_reward_on_the_validation_prompts(tmp_path):
    file = tmp_path / "val.jsonl"
    file.write_text('{"prompt": "One"}\n')
    rows = tmp_path / "train.jsonl"
    rows.write_text('{"prompt": "One", "answer": 1}\n')
    done = run("check", write_config(tmp_path), "reward.name=last_number",
               f"data.train_files={rows}", f"data.val_files={file}")
    assert done.returncode == 2, done.stdout
    assert f"{file} line 1" in done.stderr and "Correct data.val_files" in done.stderr
