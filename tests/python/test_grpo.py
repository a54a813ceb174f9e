"""GRPO as the README shows it, and models that are given by their shape alone."""

import json
import random

import pytest

from program import ROOT, run, write_config

CONFIG = "examples/grpo.yaml"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def mean(numbers):
    return sum(numbers) / len(numbers)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("grpo") / "run"
    done = run("train", CONFIG, "--run-dir", directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_it_learns(finished):
    metrics = lines(finished / "metrics.jsonl")
    rewards = [step["critic/score/mean"] for step in metrics]
    assert mean(rewards[-8:]) - mean(rewards[:8]) >= 0.4
    assert max(step["actor/ref_kl"] for step in metrics) < 1  # nats a token


def test_there_is_no_critic(finished):
    metrics = lines(finished / "metrics.jsonl")[0]
    assert "actor/kl_loss" in metrics
    assert not {"critic/vf_loss", "critic/values/mean", "timing_s/values", "timing_s/update_critic"} & set(metrics)
    plans = [json.loads(file.read_text()) for file in (finished / "plans").glob("*.json")]
    assert plans
    for plan in plans:
        assert {stage["role"] for stage in plan["stages"]} == {"actor", "reference"}
    assert list(finished.glob("checkpoints/*/actor*")) and not list(finished.glob("checkpoints/*/critic*"))


def test_it_resumes(tmp_path):
    small = ("algorithm.adv_estimator=grpo", "trainer.total_training_steps=2", "--run-dir", tmp_path / "run")
    done = run("train", write_config(tmp_path), *small)
    assert done.returncode == 0, done.stderr
    done = run("train", write_config(tmp_path), *small, "trainer.total_training_steps=3", "--resume")
    assert done.returncode == 0, done.stderr
    assert [step["step"] for step in lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2]


@pytest.mark.parametrize("estimator", ["rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax"])
def test_the_other_estimators_without_a_critic(tmp_path, estimator):
    done = run("train", write_config(tmp_path), f"algorithm.adv_estimator={estimator}",
               "trainer.total_training_steps=1", "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    metrics = lines(tmp_path / "run" / "metrics.jsonl")[0]
    assert "critic/vf_loss" not in metrics
    assert metrics["critic/advantages/min"] < metrics["critic/advantages/max"]
    if estimator != "remax":  # whose baseline is a response of its own, not a mean
        assert metrics["critic/advantages/min"] < 0 < metrics["critic/advantages/max"]
    if estimator.startswith("reinforce"):
        assert metrics["critic/advantages/mean"] == pytest.approx(0, abs=1e-9), "whitened"
    assert ("critic/returns/mean" in metrics) == (estimator in ("reinforce_plus_plus", "remax"))
    assert ("timing_s/gen_max" in metrics) == (estimator == "remax")


def shape_only(directory):
    """A model directory with nothing but a config.json, and prompts of its tokens."""
    config = json.loads((ROOT / "examples/models/llama-3.2-1b/config.json").read_text())
    config |= {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
               "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 2000, "bos_token_id": 0, "eos_token_id": 1}
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    prompts = directory / "prompts.jsonl"
    prompts.write_text("".join(
        json.dumps({"prompt_ids": [draw.randrange(2000) for _ in range(12)]}) + "\n" for _ in range(8)))
    return [f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.random_weights=true",
            f"data.train_files={prompts}", "algorithm.adv_estimator=grpo", "reward.name=response_length"]


def test_a_shape_without_tokenizer_runs(tmp_path):
    done = run("train", write_config(tmp_path), *shape_only(tmp_path), "trainer.total_training_steps=2",
               "actor_rollout_ref.rollout.ignore_eos=true", "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    metrics = lines(tmp_path / "run" / "metrics.jsonl")
    assert [step["critic/score/mean"] for step in metrics] == [-8, -8]  # the sign is -1
    assert metrics[0]["prompt_length/mean"] == 12


def test_text_needs_a_tokenizer(tmp_path):
    done = run("train", write_config(tmp_path), *shape_only(tmp_path),
               "data.train_files=assets/prompts/stories.jsonl", "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert "has no tokenizer.json" in done.stderr and "prompt_ids" in done.stderr


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    overrides = shape_only(tmp_path)
    with open(tmp_path / "prompts.jsonl", "a") as file:
        file.write('{"prompt_ids": [5, 2000]}\n')
    done = run("train", write_config(tmp_path), *overrides, "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert "row 9: token 2000 is not in the actor's vocabulary of 2000" in done.stderr


@pytest.mark.parametrize("name, parameters", [("llama-3.2-1b", 1235814400), ("llama-3.2-3b", 3212749824),
                                              ("llama-3.1-8b", 8030261248)])
def test_published_shapes(name, parameters):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(ROOT / "examples/models" / name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert model.num_parameters() == parameters
