"""`nereus check`: what it lets through can run."""

import json

import pytest

from program import run, write_config


def check(tmp_path, *overrides):
    return run("check", write_config(tmp_path), *overrides)


def prompts_file(tmp_path, rows):
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n\n".join(json.dumps(row) for row in rows) + "\n")
    return file


@pytest.mark.parametrize("reward, missing", [
    ("last_number", 'last_number: the prompt has no ground truth; give its row "answer"'),
    ("digit_completion", 'digit_completion: the prompt must be "a,b:max,n"'),
])
def test_prompts_without_what_the_reward_needs_are_refused(tmp_path, reward, missing):
    done = check(tmp_path, f"reward.name={reward}")
    assert done.returncode == 2, done.stdout
    assert f'the reward "{reward}" cannot score responses to 12 of 12 prompts' in done.stderr
    assert "assets/prompts/stories.jsonl line 1" in done.stderr and missing in done.stderr


def test_the_line_of_the_first_prompt_is_named(tmp_path):
    rows = [{"prompt": "One", "answer": 1}, {"prompt": "Two", "answer": "2"}, {"prompt": "Three"}]
    file = prompts_file(tmp_path, rows)  # with blank lines between them
    done = check(tmp_path, "reward.name=last_number", f"data.train_files={file}")
    assert done.returncode == 2, done.stdout
    assert f"1 of 3 prompts; of the first, {file} line 5, it says" in done.stderr


def test_a_share_that_the_job_bears_is_a_warning(tmp_path):
    file = prompts_file(tmp_path, [{"prompt": "One", "answer": 1}, {"prompt": "Two"}])
    arguments = ("reward.name=last_number", f"data.train_files={file}")
    done = check(tmp_path, *arguments, "reward.max_failures=0.5")
    assert done.returncode == 0, done.stderr
    assert f'warning: the reward "last_number" cannot score responses to 1 of 2 prompts; of the first, {file} line 3' \
        in done.stdout
    assert check(tmp_path, *arguments, "reward.max_failures=0.4").returncode == 2


def test_a_tokenizer_that_the_reward_cannot_use_is_refused(tmp_path):
    file = prompts_file(tmp_path, [{"prompt": "7,8:9,2"}])
    done = check(tmp_path, "reward.name=digit_completion", f"data.train_files={file}")
    assert done.returncode == 2, done.stdout
    assert "one character per token" in done.stderr


def test_the_digit_task_passes():
    done = run("check", "examples/digits.yaml", "cluster.device=cpu")
    assert done.returncode == 0, done.stderr
    assert "ok  reward: digit_completion, tried on" in done.stdout


@pytest.mark.parametrize("device", ["cuda", "cuda:63"])
def test_gpus_that_are_not_there_are_refused_as_by_train(tmp_path, device):
    overrides = (f"cluster.device={device}", f"cluster.devices={1 if ':' in device else 64}")
    done = check(tmp_path, *overrides)
    trained = run("train", write_config(tmp_path), *overrides, "--run-dir", tmp_path / "run")
    assert done.returncode == trained.returncode == 2, done.stdout
    assert "there is no GPU" in done.stderr
    assert done.stderr == trained.stderr


def test_changes_after_the_last_step_are_left_out(tmp_path):
    done = check(tmp_path, "supply=[[0, 2], [3, 1], [4, 2]]", "data.max_response_length=[[0, 8], [9, 16]]")
    assert done.returncode == 0, done.stderr
    assert "after 3 steps" in done.stdout
    assert "after 4 steps" not in done.stdout and "after 9 steps" not in done.stdout
