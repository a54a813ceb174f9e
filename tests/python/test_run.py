"""Whole runs of the program: the record they leave, stopping, resuming."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

from program import ROOT, command, run, write_config


def test_it_says_its_version():
    version = re.search(r"project\(nereus VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout == f"nereus {version}\n"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def tensors(directory, step, part):
    return load_file(directory / "checkpoints" / f"step_{step}" / f"{part}.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of four steps that nothing interrupted."""
    tmp_path = tmp_path_factory.mktemp("finished")
    done = run("train", write_config(tmp_path), "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    return tmp_path / "run"


def test_the_record_of_a_run(finished):
    metrics = lines(finished / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    for key in ("critic/score/mean", "actor/pg_loss", "response_length/mean", "timing_s/gen"):
        assert key in metrics[0]
    summary = json.loads((finished / "summary.json").read_text())
    for key in ("wall_s", "reward_first", "reward_last", "response_tokens", "throughput_tok_s",
                "transitions", "replans", "rejected", "faults"):
        assert key in summary
    assert summary["steps"] == 4
    plan = json.loads((finished / "plans/000.json").read_text())
    assert {"role", "stage", "tp", "pp", "dp", "units", "micro_batch"} <= set(plan["stages"][0])
    assert json.loads((finished / "trace.json").read_text())
    assert (finished / "config.yaml").exists()


def test_tensorboard_reads_the_events(finished):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(finished / "tb")).Reload()
    scores = events.Scalars("critic/score/mean")
    assert [point.step for point in scores] == [1, 2, 3, 4]
    expected = [line["critic/score/mean"] for line in lines(finished / "metrics.jsonl")]
    assert [point.value for point in scores] == pytest.approx(expected, rel=1e-6)


def test_the_exported_model_loads_in_transformers(finished):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(finished / "hf")
    saved = tensors(finished, 4, "actor")["weights/model.norm.weight"]
    assert (model.model.norm.weight.detach().numpy() == saved).all()


def test_explain_and_export(finished, tmp_path):
    explained = run("explain", finished)
    assert explained.returncode == 0 and "After 0 steps: plan plans/000.json" in explained.stdout
    done = run("export", finished, "--output", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model/model.safetensors").exists()


def test_sigterm_saves_and_resuming_is_bit_equal(finished, tmp_path):
    directory = tmp_path / "run"
    arguments = command("train", write_config(tmp_path), "--run-dir", directory)
    process = subprocess.Popen(arguments, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    for line in process.stdout:
        if line.startswith("step 1/"):
            process.send_signal(signal.SIGTERM)
            break
    rest = process.communicate(timeout=300)[0]
    assert process.returncode == 128 + signal.SIGTERM, "less than all steps is no success"
    assert "--resume" in rest
    stopped_after = len(lines(directory / "metrics.jsonl"))
    assert stopped_after < 4

    resumed = subprocess.run([*arguments, "--resume"], cwd=ROOT, text=True, capture_output=True,
                             timeout=300, check=False)
    assert resumed.returncode == 0, resumed.stderr
    for part in ("actor", "critic"):
        expected, found = tensors(finished, 4, part), tensors(directory, 4, part)
        assert expected.keys() == found.keys()
        for name in expected:
            assert (expected[name] == found[name]).all(), name
    for key in ("critic/score/mean", "actor/pg_loss", "critic/vf_loss"):
        assert ([line[key] for line in lines(directory / "metrics.jsonl")]
                == [line[key] for line in lines(finished / "metrics.jsonl")])


def test_without_devices_the_run_saves_and_says_how_to_go_on(tmp_path):
    directory = tmp_path / "run"
    arguments = ("train", write_config(tmp_path), "--run-dir", directory)
    stranded = run(*arguments, "supply=[[0, 2], [2, 0]]", "trainer.save_freq=0")
    assert stranded.returncode == 3, stranded.stdout + stranded.stderr
    assert "--resume" in stranded.stdout
    assert len(lines(directory / "metrics.jsonl")) == 2
    resumed = run(*arguments, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert len(lines(directory / "metrics.jsonl")) == 4


def test_two_runs_do_not_share_a_directory(tmp_path):
    directory = tmp_path / "run"
    arguments = command("train", write_config(tmp_path), "--run-dir", directory, "trainer.total_training_steps=100000")
    process = subprocess.Popen(arguments, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    process.stdout.readline()
    second = run("train", write_config(tmp_path), "--run-dir", str(directory) + "/")
    process.kill()
    process.communicate()
    assert second.returncode == 2, second.stdout
    assert f"in use by process {process.pid}" in second.stderr


def test_nobodys_files_are_moved(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("precious")
    for target in (tmp_path / "mine", tmp_path / "mine/thesis.tex"):
        refused = run("train", write_config(tmp_path), "--run-dir", target)
        assert refused.returncode == 2
        assert "not a run of nereus" in refused.stderr
    assert (tmp_path / "mine/thesis.tex").read_text() == "precious"


def test_resuming_says_what_it_skips_and_what_has_changed(tmp_path):
    directory = tmp_path / "run"
    whole = run("train", write_config(tmp_path), "--run-dir", directory, "trainer.save_freq=2")
    assert whole.returncode == 0, whole.stderr
    assert (directory / "checkpoints/step_2").exists()
    os.truncate(directory / "checkpoints/step_4/actor.safetensors", 1000)
    arguments = ("train", write_config(tmp_path), "--run-dir", directory, "--resume")
    resumed = run(*arguments, "data.max_prompt_length=17")
    assert resumed.returncode == 0, resumed.stderr
    assert "Skipped a newer checkpoint" in resumed.stdout
    assert "actor.safetensors: 1000 of" in resumed.stdout
    assert "data.max_prompt_length" in resumed.stdout
    for path in (directory / "checkpoints").iterdir():
        os.truncate(path / "actor.safetensors", 1000)
    refused = run(*arguments)
    assert refused.returncode == 2
    assert "is complete" in refused.stderr


def test_a_run_leaves_no_checkpoint_if_it_need_not(tmp_path):
    done = run("train", write_config(tmp_path), "--run-dir", tmp_path / "run",
               "trainer.total_training_steps=1", "trainer.save_freq=0")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("run/checkpoints/*"))
    assert (tmp_path / "run/hf/model.safetensors").exists()


def test_a_new_run_keeps_the_earlier_one(tmp_path):
    directory = tmp_path / "run"
    arguments = ("train", write_config(tmp_path), "trainer.total_training_steps=1",
                 "--run-dir", directory)
    assert run(*arguments).returncode == 0
    assert run(*arguments).returncode == 0
    assert (tmp_path / "run.1/summary.json").exists()


def test_plan_prints_the_promised_json(tmp_path):
    done = run("plan", write_config(tmp_path), "--gpus", 2, "--length", 32, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert {"plan", "step_s", "step_s_low", "step_s_high", "stages_s", "memory",
            "runners_up"} <= set(plan)


def test_check_lists_what_is_fine(tmp_path):
    done = run("check", write_config(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "ok  prompts" in done.stdout and "ok  reward" in done.stdout
