"""What hinders a run on its way, from closed streams to full disks, costs it no step that was done."""

import json
import resource
import subprocess

import pytest
import torch

from program import ROOT, command, run, start, write_config
from run_directory import checkpoints, lines, steps_of


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full",
                                     "2>/dev/full >/dev/full"])
def test_standard_streams_that_are_closed_or_full_cost_nothing(tmp_path, streams):
    arguments = " ".join(command("train", write_config(tmp_path), "--run-dir", tmp_path / "run",
                                 "trainer.total_training_steps=2"))
    done = subprocess.run(f"{arguments} {streams}", shell=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0
    assert steps_of(tmp_path / "run") == [0, 1]
    assert lines(tmp_path / "run/events.jsonl")
    assert json.loads((tmp_path / "run/summary.json").read_text())["steps"] == 2
    assert (tmp_path / "run/lock").read_text().isdigit()


def test_a_reader_that_goes_away_costs_nothing(tmp_path):
    process = start("train", write_config(tmp_path), "--run-dir", tmp_path / "run")
    process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=300) == 0
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3]


def test_other_commands_end_quietly_when_nobody_reads_on(tmp_path):
    arguments = " ".join(command("config", write_config(tmp_path)))
    done = subprocess.run(f"({arguments}; echo $? >&2) | true", shell=True, cwd=ROOT, text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.stderr.split()[-1] in ("0", "141")
    assert len(done.stderr.split()) == 1


# A checkpoint's part has weights and two moments, the model's file the weights alone.
BETWEEN = 2_000_000
SMALL_FILES = {"preexec_fn": lambda: resource.setrlimit(
    resource.RLIMIT_FSIZE, (BETWEEN, resource.RLIM_INFINITY))}


def test_a_checkpoint_that_cannot_be_written_is_warned_of_and_tried_again(tmp_path):
    directory = tmp_path / "run"
    process = start("train", write_config(tmp_path), "--run-dir", directory,
                    "trainer.save_freq=2", "trainer.total_training_steps=7", **SMALL_FILES)
    for line in process.stdout:
        if line.startswith("step 2/"):
            break
    while "no checkpoint could be saved after step 2" not in process.stderr.readline():
        assert process.poll() is None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "is saved" in err
    assert checkpoints(directory) == [6, 7]
    assert steps_of(directory) == list(range(7))


def test_the_model_is_exported_whatever_became_of_the_checkpoint(tmp_path):
    directory = tmp_path / "run"
    process = start("train", write_config(tmp_path), "--run-dir", directory, **SMALL_FILES)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, out + err
    assert "the last state could not be saved" in err and "File too large" in err
    assert (directory / "hf/model.safetensors").exists()
    assert not checkpoints(directory) and not list(directory.rglob("*.partial"))
    assert "Done: 4 steps" in out


def test_a_full_disk_costs_a_checkpoint_and_no_more(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", disk],
                             capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        done = run("train", write_config(tmp_path), "--run-dir", disk / "run",
                   "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=1")
        assert "No space left" in done.stderr
        assert checkpoints(disk / "run"), "the older one is kept"
        assert steps_of(disk / "run") == [0, 1, 2, 3]
        resumed = run("train", write_config(tmp_path), "--run-dir", disk / "run", "--resume",
                      "trainer.save_freq=0")
        assert resumed.returncode == 0, resumed.stderr
        assert (disk / "run/hf/model.safetensors").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


# A learning rate that leaves weights which are no numbers: the step after it fails.
BROKEN = ("actor_rollout_ref.actor.optim.lr=3e37", "actor_rollout_ref.actor.ppo_mini_batch_size=2",
          "actor_rollout_ref.actor.optim.weight_decay=10")


@pytest.mark.parametrize("save_freq", [-1, 0])
def test_numbers_that_are_none_save_the_boundary_before_them(tmp_path, save_freq):
    directory = tmp_path / "run"
    failed = run("train", write_config(tmp_path), "--run-dir", directory, *BROKEN,
                 f"trainer.save_freq={save_freq}")
    assert failed.returncode == 1, failed.stdout
    done = steps_of(directory)
    assert done and checkpoints(directory) == [len(done)]
    assert f"after step {len(done)} is saved" in failed.stderr and "--resume" in failed.stderr
    assert json.loads((directory / "summary.json").read_text())["faults"]


RAISES = """
import os
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if os.path.exists({switch!r}):
        raise RuntimeError("the judge is gone")
    return float(len(solution_str))
"""


def test_a_reward_that_fails_for_good_costs_no_step(tmp_path):
    (tmp_path / "reward.py").write_text(RAISES.format(switch=str(tmp_path / "switch")))
    arguments = ("train", write_config(tmp_path), "--run-dir", tmp_path / "run", "reward.name=",
                 f"custom_reward_function.path={tmp_path / 'reward.py'}", "reward.max_failures=0",
                 "trainer.total_training_steps=1000")
    process = start(*arguments)
    for line in process.stdout:
        if line.startswith("step 2/"):
            (tmp_path / "switch").write_text("")
            break
    _, err = process.communicate(timeout=300)
    assert process.returncode in (1, 2), err
    assert "the judge is gone" in err and "--resume" in err
    steps = len(steps_of(tmp_path / "run"))
    assert steps >= 2 and checkpoints(tmp_path / "run") == [steps]
    (tmp_path / "switch").unlink()
    resumed = run(*arguments, f"trainer.total_training_steps={steps + 1}", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert steps_of(tmp_path / "run") == list(range(steps + 1))


@pytest.mark.parametrize("gone", [False, True])
def test_a_reward_that_changes_the_directory_changes_nothing(tmp_path, gone):
    (tmp_path / "reward.py").write_text(
        "import os, tempfile\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    place = tempfile.mkdtemp()\n"
        "    os.chdir(place)\n" + ("    os.rmdir(place)\n" if gone else "") +
        "    return float(len(solution_str))\n")
    config = ROOT / "small.yaml"
    process = start("train", write_config(tmp_path), "--run-dir", "runs/here", "reward.name=",
                    "custom_reward_function.path=reward.py", "trainer.rollout_data_dir=rollouts",
                    "trainer.save_freq=1",
                    *(f"{key}={ROOT / 'assets/stories260K'}" for key in
                      ("actor_rollout_ref.model.path", "critic.model.path")),
                    f"data.train_files={ROOT / 'assets/prompts/stories.jsonl'}",
                    f"reward.lexicon={ROOT / 'assets/vader/vader_lexicon.txt'}", cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    directory = tmp_path / "runs/here"
    assert steps_of(directory) == [0, 1, 2, 3] and checkpoints(directory) == [3, 4]
    assert (directory / "hf/model.safetensors").exists()
    assert len(list((tmp_path / "rollouts").iterdir())) == 4
    assert not config.exists()
    # What it says of itself is read back from anywhere.
    assert run("config", directory / "config.yaml").returncode == 0
    assert run("export", directory, "--output", tmp_path / "model").returncode == 0


@pytest.mark.skipif(torch.version.cuda is not None, reason="the libraries of CUDA do not load within such limits")
@pytest.mark.parametrize("limit,amount,named", [
    (resource.RLIMIT_AS, 1_200_000_000, "ulimit -v"),
    (resource.RLIMIT_AS, 900_000_000, "ulimit -v"),
    (resource.RLIMIT_NOFILE, 12, "ulimit -n"),
])
def test_a_limit_of_the_machine_is_named(tmp_path, limit, amount, named):
    process = start("train", write_config(tmp_path), "--run-dir", tmp_path / "run",
                    preexec_fn=lambda: resource.setrlimit(limit, (amount, amount)))
    out, err = process.communicate(timeout=300)
    if process.returncode == 0:
        pytest.skip("this machine needs less than that")
    assert named in err, out + err
