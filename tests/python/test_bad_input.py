"""Bad input: a clear message and exit code 2 before any work."""

import json
import shutil

import numpy
import pytest
from safetensors.numpy import load_file, save_file

from program import ROOT, run, write_config

MODEL = ROOT / "assets/stories260K"


def refused(tmp_path, *overrides):
    directory = tmp_path / "run"
    done = run("train", write_config(tmp_path), *overrides, "--run-dir", directory)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert not directory.exists(), "work was begun"
    return done.stderr


def copy_of_model(tmp_path):
    return shutil.copytree(MODEL, tmp_path / "model")


def test_missing_config():
    done = run("train", "nowhere.yaml")
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr


def test_missing_prompts(tmp_path):
    assert "there is no nowhere.jsonl" in refused(tmp_path, "data.train_files=nowhere.jsonl")


def test_unknown_key_with_suggestion(tmp_path):
    message = refused(tmp_path, "actor_rollout_ref.rollout.temprature=1")
    assert "did you mean actor_rollout_ref.rollout.temperature?" in message


def test_wrong_type_names_key_value_and_type(tmp_path):
    message = refused(tmp_path, "data.train_batch_size=many")
    assert "data.train_batch_size = many: expected a whole number" in message


def test_unsupported_algorithm(tmp_path):
    message = refused(tmp_path, "algorithm.adv_estimator=gspo")
    assert "gspo" in message and "gae, grpo, rloo" in message


def test_tensor_parallelism_that_does_not_divide_the_heads(tmp_path):
    message = refused(tmp_path, "plan.all.tp=3", "plan.all.dp=1", "cluster.devices=3")
    assert "1, 2" in message


def test_more_devices_than_there_are(tmp_path):
    assert "needs 8 devices" in refused(tmp_path, "plan.all.tp=4")


def test_mini_batch_larger_than_the_batch(tmp_path):
    message = refused(tmp_path, "actor_rollout_ref.actor.ppo_mini_batch_size=16")
    assert "16" in message and "train_batch_size = 2" in message


def test_long_prompts_are_counted_and_refused(tmp_path):
    message = refused(tmp_path, "data.max_prompt_length=9")
    assert "7 of 12 prompts are longer than data.max_prompt_length" in message


def test_long_prompts_are_counted_and_dropped(tmp_path):
    done = run("train", write_config(tmp_path), "data.max_prompt_length=9",
               "data.filter_overlong_prompts=true", "trainer.total_training_steps=1",
               "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "Dropped 7 prompts" in done.stdout


def test_gpus_that_are_not_there(tmp_path):
    message = refused(tmp_path, "cluster.device=cuda:63,64")
    assert "no GPU 63" in message and "cuda:0,0" in message


def test_plan_that_does_not_fit(tmp_path):
    message = refused(tmp_path, "cluster.memory_per_device=4MiB")
    for word in ("0:0", "0:1", "weights", "moments", "activations", "4.00 MiB"):
        assert word in message


def test_no_plan_fits(tmp_path):
    done = run("train", write_config(tmp_path), "plan=null", "cluster.memory_per_device=1MiB")
    assert done.returncode == 3
    assert done.stderr.startswith("error: no plan fits 2 devices of 1.00 MiB: closest is")


def test_truncated_safetensors(tmp_path):
    model = copy_of_model(tmp_path)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "model.safetensors" in refused(tmp_path, f"actor_rollout_ref.model.path={model}")


def test_wrong_tensor_shape(tmp_path):
    model = copy_of_model(tmp_path)
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"] = numpy.ones(65, numpy.float32)
    save_file(tensors, model / "model.safetensors")
    message = refused(tmp_path, f"actor_rollout_ref.model.path={model}")
    assert "model.norm.weight" in message and "65" in message and "64" in message


def test_nan_in_a_checkpoint(tmp_path):
    model = copy_of_model(tmp_path)
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"][3] = numpy.nan
    save_file(tensors, model / "model.safetensors")
    message = refused(tmp_path, f"critic.model.path={model}")
    assert "model.norm.weight" in message


def test_bad_prompt_row(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "fine"}) + "\n{\"question\": 1}\n")
    message = refused(tmp_path, f"data.train_files={prompts}")
    assert str(prompts) in message and "row 2" in message and '"prompt"' in message


@pytest.mark.parametrize("token", [1.5, True, "3", 512, -1])
def test_tokens_that_are_none(tmp_path, token):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "fine"}) + "\n" + json.dumps({"prompt_ids": [4, token]}) + "\n")
    message = refused(tmp_path, f"data.train_files={prompts}")
    assert f"{prompts} row 2" in message and json.dumps(token) in message


def test_messages_without_a_chat_template(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    prompts.write_text(json.dumps({"prompt": messages}) + "\n")
    message = refused(tmp_path, f"data.train_files={prompts}")
    assert f"{prompts} row 1" in message and "no chat template" in message


def test_quantised_checkpoint(tmp_path):
    model = copy_of_model(tmp_path)
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (model / "config.json").write_text(json.dumps(config))
    override = f"actor_rollout_ref.model.path={model}"
    checked = run("check", write_config(tmp_path), override)
    assert checked.returncode == 2
    for message in (refused(tmp_path, override), checked.stderr):
        assert str(model / "config.json") in message and "quantization_config (gptq)" in message


def test_bad_generation_config(tmp_path):
    model = copy_of_model(tmp_path)
    (model / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    message = refused(tmp_path, f"actor_rollout_ref.model.path={model}")
    assert str(model / "generation_config.json") in message and '"</s>"' in message


@pytest.mark.parametrize("command", ["train", "plan", "check", "transition", "explain", "export"])
def test_help_shows_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"./nereus {command} " in done.stdout
