"""`nereus plan --compare`: settings of other frameworks beside the best plan."""

import json

import pytest

from program import run

JOB = "examples/plan/llama-8b.yaml"


def compare(setting, *options):
    words = setting if isinstance(setting, list) else [setting]
    return run("plan", JOB, "--cluster", "h200x8", *options, "--compare", *words)


def compare_json(setting, *options):
    done = compare(setting, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stages(plan):
    return {f"{stage['role']}/{stage['stage']}": stage for stage in plan["stages"]}


@pytest.mark.parametrize("file, framework, devices, training", [
    ("examples/plan/verl.sh", "verl", 16, {"tp": 4, "pp": 2, "zero": 2}),
    ("examples/plan/nemo_rl.yaml", "nemo-rl", 16, {"tp": 2, "pp": 2, "zero": 4}),
    ("examples/plan/openrlhf.sh", "openrlhf", 8, {"tp": 1, "pp": 1, "zero": 8}),
])
def test_each_framework_is_predicted_beside_the_best_plan(file, framework, devices, training):
    report = compare_json(file)
    compared = report["compare"]
    assert compared["framework"] == framework
    assert compared["unknown"] == []
    actor = stages(compared["plan"])["actor/training"]
    assert {key: actor[key] for key in training} == training
    used = {device for stage in compared["plan"]["stages"] for unit in stage["units"] for device in unit}
    assert len(used) == devices
    assert compared["ratio"] == pytest.approx(compared["step_s"] / report["step_s"])
    assert compared["step_s_low"] < compared["step_s"] < compared["step_s_high"]
    assert set(compared["stages_s"]) == set(report["stages_s"])  # the same job for both
    assert compared["fits"] == (not compared["violations"])
    assert compared["ratio"] >= 1 or not compared["fits"]  # the search knows what the setting can do


def test_words_change_what_a_file_says():
    narrow = compare_json(["examples/plan/verl.sh", "trainer.nnodes=4"])
    assert stages(narrow["compare"]["plan"])["actor/training"]["dp"] == 4


def test_flags_come_as_one_word():
    done = run("plan", JOB, "--cluster", "h200x8", "--json",
               "--compare=--actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 "
               "--train.colocate_all")
    assert done.returncode == 0, done.stderr
    generation = stages(json.loads(done.stdout)["compare"]["plan"])["actor/generation"]
    assert (generation["tp"], generation["dp"]) == (2, 4)


def test_the_job_is_the_settings():
    report = compare_json("examples/plan/verl.sh")
    assert "data.train_batch_size=1024" in report["compare"]["job"]
    longer = compare_json(["examples/plan/verl.sh", "data.max_response_length=4096"])
    assert longer["step_s"] > report["step_s"] and longer["compare"]["step_s"] > report["compare"]["step_s"]


def test_more_sequences_at_once_need_more_memory():
    peaks = [max(compare_json(["examples/plan/verl.sh", f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={size}"])
                 ["compare"]["peak_bytes"].values()) for size in (1, 16)]
    assert peaks[0] < peaks[1]


def test_text_says_what_differs_and_what_became_of_the_keys():
    done = compare("examples/plan/openrlhf.sh", "--compare=--rollout.batch_sizes=3 --ds.zpg=8")
    assert done.returncode == 0, done.stderr
    for words in ("the setting of openrlhf on 8 devices", "best plan", "ratio", "What differs", "Memory of the setting",
                  "Approximated", "--ds.zero_stage 3: as ZeRO-1", "Unknown keys",
                  "--rollout.batch_sizes: did you mean batch_size?", "--ds.zpg: not modelled"):
        assert words in done.stdout, words


@pytest.mark.parametrize("setting, words", [
    ("nowhere.sh", ["nowhere.sh", "no such file"]),
    ("a=b", ["--compare-format"]),
    ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", ["ulysses_sequence_parallel_size = 2"]),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=3", ["actor/generation", "no multiple of tp3"]),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=x", ["= x: must be a whole number"]),
])
def test_what_cannot_be_compared_is_named(setting, words):
    done = compare(setting)
    assert done.returncode == 2, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, word


def test_a_setting_on_fewer_devices_is_compared_with_the_best_plan_on_as_many():
    alone = compare_json("examples/plan/openrlhf.sh")  # on its 8 devices
    among = compare_json("examples/plan/openrlhf.sh", "--gpus", 16)
    assert among["step_s"] < alone["step_s"]
    best = among["compare"]["best"]
    assert best == {"plan": alone["plan"], "step_s": alone["step_s"]} == alone["compare"]["best"]
    assert among["compare"]["ratio"] == alone["compare"]["ratio"]
    text = compare("examples/plan/openrlhf.sh", "--gpus", 16).stdout
    assert "setting of openrlhf on 8 devices" in text and "best plan's step on as many devices" in text
    best_lines = [line for line in text.splitlines() if line.startswith("  best: ")]
    assert best_lines and not [line for line in best_lines if "1:0" in line.split("[", 1)[1]]


def test_no_plan_fits_as_many_devices_as_the_setting_takes():
    done = compare(["cluster.num_nodes=1", "cluster.gpus_per_node=1"], "--compare-format", "nemo-rl", "--gpus", 8)
    assert done.returncode == 3, done.stdout
    assert "--compare: the setting takes 1 of 8 devices, and no plan fits 1 devices" in done.stderr


def test_more_devices_than_there_are():
    done = compare("examples/plan/verl.sh", "--gpus", 8)
    assert done.returncode == 2
    assert "takes 16 devices, there are 8" in done.stderr


def test_the_format_may_be_named():
    done = compare(["cluster.num_nodes=1", "cluster.gpus_per_node=8"], "--compare-format", "nemo-rl")
    assert done.returncode == 0, done.stderr
    assert "setting of nemo-rl on 8 devices" in done.stdout
