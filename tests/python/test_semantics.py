"""What samples teach: those without a score, those that are all alike, single tokens; learning rates over the steps."""

import json
import math

import pytest
from safetensors.numpy import load_file

from program import ROOT, run, write_config

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if {fails}:
        raise TimeoutError("grader timed out")
    return {score}
"""
SOME = "sum(map(ord, solution_str)) % 3 == 0"  # a third of all texts
ESTIMATORS = ["gae", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]


def reward(directory, score, fails="False"):
    file = directory / "reward.py"
    file.write_text(REWARD.format(score=score, fails=fails))
    return ["reward.name=", f"custom_reward_function.path={file}"]


def train(directory, *arguments):
    """(the finished process, the metrics of its steps)"""
    done = run("train", write_config(directory), *arguments, "--run-dir", directory / "run")
    file = directory / "run" / "metrics.jsonl"
    return done, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unscored_samples_are_left_out(tmp_path, estimator):
    done, steps = train(tmp_path, *reward(tmp_path, "10 + len(solution_str)", SOME),
                        "reward.max_failures=1", f"algorithm.adv_estimator={estimator}")
    assert done.returncode == 0, done.stderr
    for step in steps:
        assert step["reward/excluded"] == step["reward/failures"] > 0
        assert step["critic/score/min"] >= 10
        assert all(math.isfinite(value) for value in step.values() if not isinstance(value, dict))


def test_they_may_count_as_zero_or_stop_the_run(tmp_path):
    flaky = [*reward(tmp_path, "10", SOME), "reward.max_failures=1", "trainer.total_training_steps=1"]
    done, steps = train(tmp_path, *flaky, "reward.unscored=zero")
    assert done.returncode == 0, done.stderr
    assert steps[0]["critic/score/min"] == 0 and steps[0]["reward/excluded"] == 0
    done, _ = train(tmp_path, *flaky, "reward.unscored=stop")
    assert done.returncode != 0
    assert "grader timed out" in done.stderr


def test_a_run_without_any_score_goes_on(tmp_path):
    done, steps = train(tmp_path, *reward(tmp_path, "1", "True"), "reward.max_failures=1")
    assert done.returncode == 0, done.stderr
    assert "nothing is learnt from it" in done.stderr
    assert len(steps) == 4 and all(step["reward/excluded"] == 8 for step in steps)
    start = load_file(ROOT / "assets/stories260K/model.safetensors")
    end = load_file(tmp_path / "run/hf/model.safetensors")
    assert all((start[name] == end[name]).all() for name in start)


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
@pytest.mark.parametrize("score", ["0.7", "1e8 + 0.1"])
def test_equal_rewards_teach_nothing(tmp_path, estimator, score):
    if estimator == "reinforce_plus_plus":
        pytest.skip("compares tokens, not responses: covered by rl_test")
    done, steps = train(tmp_path, *reward(tmp_path, score), f"algorithm.adv_estimator={estimator}",
                        "algorithm.use_kl_in_reward=false", "actor_rollout_ref.actor.optim.weight_decay=0",
                        "actor_rollout_ref.model.dtype=float64", "actor_rollout_ref.rollout.n=7")
    assert done.returncode == 0, done.stderr
    for step in steps:
        assert step["critic/advantages/min"] == step["critic/advantages/max"] == 0
        assert step["frac_reward_zero_std"] == 1
    start = load_file(ROOT / "assets/stories260K/model.safetensors")
    end = load_file(tmp_path / "run/hf/model.safetensors")
    assert all((start[name] == end[name]).all() for name in start)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_token_is_a_batch(tmp_path, estimator):
    done, steps = train(tmp_path, f"algorithm.adv_estimator={estimator}", "data.max_response_length=1",
                        "data.train_batch_size=1", "actor_rollout_ref.actor.ppo_mini_batch_size=1",
                        "actor_rollout_ref.rollout.n=1", "plan.all.dp=1", "trainer.total_training_steps=2")
    assert done.returncode == 0, done.stderr
    assert len(steps) == 2
    assert "frac_reward_zero_std" not in steps[0], "a lone response is compared with none"


def test_learning_rates_follow_the_steps(tmp_path):
    optim = "actor_rollout_ref.actor.optim."
    done, steps = train(tmp_path, optim + "lr=1", optim + "lr_warmup_steps_ratio=0.5",
                        optim + "lr_scheduler_type=cosine", "critic.optim.lr=1", "critic.optim.lr_warmup_steps=3",
                        "actor_rollout_ref.actor.ppo_epochs=2", "actor_rollout_ref.actor.grad_clip=1e-6",
                        "critic.grad_clip=1e-6", optim + "eps=1", "critic.optim.eps=1")
    assert done.returncode == 0, done.stderr
    assert [step["actor/lr"] for step in steps] == pytest.approx([0, 0.5, 1, 0.5])
    assert [step["critic/lr"] for step in steps] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_float16_is_refused_with_what_to_use(tmp_path):
    done, _ = train(tmp_path, "actor_rollout_ref.model.dtype=float16")
    assert done.returncode == 2
    assert "model.dtype" in done.stderr and "bfloat16" in done.stderr
