"""Rewards that a model gives: transformers' own scores, under every layout and across changes of it."""

import json
import random

import pytest

from program import run

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=52, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=2, eos_token_id=1, pad_token_id=0)

# The actor's EOS ends about a quarter of the responses early.
CONFIG = """
data:
  train_files: {folder}/prompts.jsonl
  max_prompt_length: 12
  max_response_length: 16
  train_batch_size: 4
actor_rollout_ref:
  model: {{path: {folder}/actor, random_weights: true}}
  actor: {{optim: {{lr: 1.0e-3}}, ppo_mini_batch_size: 2}}
  rollout: {{n: 2}}
critic:
  model: {{path: {folder}/actor, random_weights: true}}
algorithm: {{use_kl_in_reward: true, lam: 0.95}}
reward_model:
  enable: true
  model: {{path: {folder}/reward}}
trainer: {{total_training_steps: 2}}
cluster: {{device: cpu, devices: 2, memory_per_device: 64MiB}}
adaptation: {{enabled: false}}
"""


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def scorer(directory, **changes):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(**(SIZES | dict(num_labels=1, initializer_range=0.3) | changes))
    model = transformers.LlamaForSequenceClassification(config).float().eval()
    model.save_pretrained(directory)
    return model


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    """An actor that is a shape, a reward model with weights, and prompts whose answers are their rows."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "actor").mkdir()
    actor = transformers.LlamaConfig(**SIZES, architectures=["LlamaForCausalLM"])
    (folder / "actor/config.json").write_text(json.dumps(actor.to_dict()))
    scorer(folder / "reward")
    draw = random.Random(1)
    (folder / "prompts.jsonl").write_text("".join(
        json.dumps({"prompt_ids": [draw.randrange(3, 64) for _ in range(3 + row)], "answer": str(row)}) + "\n"
        for row in range(8)))
    (folder / "small.yaml").write_text(CONFIG.format(folder=folder))
    return folder


def train(folder, directory, *overrides):
    done = run("train", folder / "small.yaml", "--run-dir", directory / "run",
               f"trainer.rollout_data_dir={directory}/rollouts", *overrides)
    assert done.returncode == 0, done.stderr
    return directory / "run"


def refused(folder, *overrides, command="train"):
    done = run(command, folder / "small.yaml", *overrides)
    assert done.returncode == 2, done.stdout
    return done.stderr


@pytest.mark.parametrize("layout", [{}, {"tp": 2}, {"pp": 2}, {"dp": 2}, {"tp": 2, "pp": 2}])
def test_scores_are_those_of_transformers(folder, tmp_path, layout):
    plan = [f"plan.all.{degree}={count}" for degree, count in ({"micro_batch": 2} | layout).items()]
    metrics = lines(train(folder, tmp_path, "cluster.devices=4", *plan) / "metrics.jsonl")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "reward", dtype=torch.float32)
    prompts = [row["prompt_ids"] for row in lines(folder / "prompts.jsonl")]
    lengths = set()
    for step in (1, 2):
        scores = []
        for sample in lines(tmp_path / "rollouts" / f"{step}.jsonl"):
            tokens = prompts[int(sample["gts"])] + [int(token) for token in sample["output"].split()]
            lengths.add(len(sample["output"].split()))
            with torch.no_grad():
                expected = model(torch.tensor([tokens])).logits.item()
            assert sample["score"] == pytest.approx(expected, abs=1e-4)
            scores.append(sample["score"])
        assert max(scores) - min(scores) > 0.1
        assert metrics[step - 1]["critic/score/mean"] == pytest.approx(sum(scores) / len(scores), abs=1e-6)
        assert metrics[step - 1]["timing_s/reward"] > 0
    assert len(lengths) > 2  # micro-batches hold sequences of several lengths


# In float64, so that no draw depends on the order in which a layout adds up.
STEPS = ("trainer.total_training_steps=6", "actor_rollout_ref.model.dtype=float64")
SUPPLY = "supply=[[0, 2], [2, 1], [4, 2]]"


@pytest.fixture(name="fixed", scope="module")
def _fixed(folder, tmp_path_factory):
    return train(folder, tmp_path_factory.mktemp("fixed"), "plan.all.tp=1", *STEPS)


def assert_same_curves(expected, actual):
    for a, b in zip(lines(expected / "metrics.jsonl"), lines(actual / "metrics.jsonl"), strict=True):
        for key in ("critic/score/mean", "critic/score/max", "critic/vf_loss", "actor/ref_kl", "actor/grad_norm"):
            assert b[key] == pytest.approx(a[key], rel=1e-9, abs=1e-12), (a["step"], key)


@pytest.mark.parametrize("plan", ["plan.all.tp=2", "plan.all.pp=2", "plan=null"])
def test_devices_that_come_and_go_change_no_score(folder, fixed, tmp_path, plan):
    directory = train(folder, tmp_path, SUPPLY, plan, *STEPS)
    transitions = json.loads((directory / "summary.json").read_text())["transitions"]
    assert [transition["step"] for transition in transitions][:1] == [1]
    assert all(transition["verified"] for transition in transitions)
    if plan != "plan=null":
        moved = {primitive["role"] for primitive in transitions[0]["primitives"]}
        assert "reward" in moved
    assert_same_curves(fixed, directory)
    explained = run("explain", directory)
    assert explained.returncode == 0 and "reward" in explained.stdout


def test_it_is_loaded_anew_on_resume(folder, fixed, tmp_path):
    train(folder, tmp_path, *STEPS, "plan.all.tp=2", "trainer.total_training_steps=3")
    checkpoint = tmp_path / "run/checkpoints/step_3"
    assert {file.stem for file in checkpoint.glob("*.safetensors")} == {"actor", "critic"}
    assert_same_curves(fixed, train(folder, tmp_path, *STEPS, "plan.all.pp=2", "--resume"))


def test_grpo_has_its_scores_too(folder, tmp_path):
    metrics = lines(train(folder, tmp_path, "algorithm.adv_estimator=grpo") / "metrics.jsonl")
    assert metrics[0]["critic/score/max"] > metrics[0]["critic/score/min"]


def test_plans_and_checks_name_the_stage(folder):
    done = run("plan", folder / "small.yaml", "--json", "reward_model.micro_batch_size_per_gpu=4",
               "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    stages = {stage["role"]: stage for stage in report["plan"]["stages"] if stage["stage"] != "generation"}
    assert stages["reward"]["stage"] == "inference"
    assert (stages["reward"]["micro_batch"], stages["reference"]["micro_batch"]) == (4, 1)
    assert any(entry["component"].startswith("reward/inference") or entry.get("role") == "reward"
               for entry in report["memory"])
    checked = run("check", folder / "small.yaml")
    assert checked.returncode == 0, checked.stderr
    assert "ok  reward: llama of" in checked.stdout and "reward/inference" in checked.stdout


def test_random_weights_score_differently(folder, tmp_path):
    scores = [lines(train(folder, tmp_path, "reward_model.model.random_weights=true") / "metrics.jsonl")[0][
        f"critic/score/{end}"] for end in ("min", "max")]
    assert scores[0] < scores[1]


def test_a_model_of_another_vocabulary_is_refused(folder, tmp_path):
    scorer(tmp_path / "wide", vocab_size=70)
    for command in ("train", "check", "plan"):
        message = refused(folder, f"reward_model.model.path={tmp_path}/wide", command=command)
        assert "the reward model has a vocabulary of 70 tokens, the actor of 64" in message


@pytest.mark.parametrize("labels", [2, 3])
def test_a_model_of_several_labels_is_refused(folder, tmp_path, labels):
    scorer(tmp_path / "labels", num_labels=labels)
    message = refused(folder, f"reward_model.model.path={tmp_path}/labels")
    assert f"labels/config.json: LlamaForSequenceClassification has {labels} labels" in message


def test_a_model_without_a_score_is_refused(folder, tmp_path):
    message = refused(folder, f"reward_model.model.path={folder}/actor")
    assert "reward_model.model.path" in message and "num_labels 1" in message
    headless = tmp_path / "headless"
    model = scorer(headless)
    model.model.save_pretrained(headless / "body")
    (headless / "body/config.json").write_text((headless / "config.json").read_text())
    for command in ("train", "check"):
        message = refused(folder, f"reward_model.model.path={headless}/body", command=command)
        assert "1 tensors of config.json are missing: score.weight" in message


def test_a_model_too_short_for_the_responses_is_refused(folder, tmp_path):
    scorer(tmp_path / "short", max_position_embeddings=20)
    message = refused(folder, f"reward_model.model.path={tmp_path}/short")
    assert "= 28 tokens exceed the reward model's max_position_embeddings of 20" in message


def test_two_rewards_are_refused(folder):
    message = refused(folder, "reward.name=response_length")
    assert "reward.name = response_length beside reward_model.enable = true: give one of them" in message
    message = refused(folder, "custom_reward_function.path=examples/custom_reward.py")
    assert "custom_reward_function.path = " in message and "reward_model.enable = true" in message
    assert "reward_model.model.path is missing" in refused(folder, "reward_model.model.path=null")
    assert "reward_model.enable is missing" in refused(folder, "reward_model.enable=false")
