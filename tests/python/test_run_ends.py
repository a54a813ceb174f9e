"""However a run is stopped, cut off or hindered, its work is kept and going on is bit-equal."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import time

import pytest
import torch
from safetensors.numpy import load_file

from program import ROOT, command, run, write_config

# More of each on demand: NEREUS_PAIRS=50 NEREUS_CHAINS=20.
PAIRS = int(os.environ.get("NEREUS_PAIRS", "3"))
CHAINS = int(os.environ.get("NEREUS_CHAINS", "2"))

# Long enough to be hit in any part of it: validations, micro-batches, several updates a step.
VARIED = ("data.val_files=assets/prompts/stories.jsonl", "trainer.test_freq=2",
          "data.max_response_length=24")


def start(*arguments, **options):
    return subprocess.Popen(command(*arguments), cwd=options.pop("cwd", ROOT), text=True,
                            stdout=options.pop("stdout", subprocess.PIPE),
                            stderr=options.pop("stderr", subprocess.PIPE), **options)


def steps_of(directory):
    """The steps in metrics.jsonl, every line of which must be a record."""
    return [json.loads(line)["step"]
            for line in (directory / "metrics.jsonl").read_text().splitlines()]


def checkpoints(directory):
    return sorted(int(path.name.split("_")[1]) for path in directory.glob("checkpoints/step_*"))


def assert_equal(found, expected, step=4):
    """The trained state after `step` of two runs."""
    for part in ("actor", "critic"):
        files = [load_file(place / f"checkpoints/step_{step}/{part}.safetensors")
                 for place in (found, expected)]
        assert files[0].keys() == files[1].keys()
        for name in files[0]:
            assert files[0][name].tobytes() == files[1][name].tobytes(), name
    model = "hf/model.safetensors"
    assert (found / model).read_bytes() == (expected / model).read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted, and the seconds that it took."""
    tmp_path = tmp_path_factory.mktemp("whole")
    began = time.monotonic()
    done = run("train", write_config(tmp_path), "--run-dir", tmp_path / "run", *VARIED)
    assert done.returncode == 0, done.stderr
    return tmp_path / "run", time.monotonic() - began


def interrupted_chain(tmp_path, seconds, chance, interrupt):
    """Starts and interrupts a run at random moments until it gets to its end; how often."""
    directory = tmp_path / "run"
    arguments = ("train", write_config(tmp_path), "--run-dir", directory, *VARIED, "--resume")
    for session in range(60):
        # Later sessions get more time: the chain is to end.
        patience = chance.uniform(0, seconds * (0.6 + 0.1 * session))
        process = start(*arguments)
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            interrupt(process)
            out, err = process.communicate(timeout=120)
        if process.returncode == 0:
            return session
        assert_sound(process, out, err, directory)
    raise AssertionError("it does not get to its end")


def assert_sound(process, out, err, directory):
    """What may be left behind is readable; nothing but signals ended it."""
    assert process.returncode < 0 or process.returncode > 128, out + err
    if (directory / "metrics.jsonl").exists():
        text = (directory / "metrics.jsonl").read_text()
        for line in text[:text.rfind("\n") + 1].splitlines():
            json.loads(line)


@pytest.mark.parametrize("seed", range(CHAINS))
def test_killed_at_any_moment_a_resumed_run_is_bit_equal(whole, tmp_path, seed):
    expected, seconds = whole
    chance = random.Random(seed)
    interrupted_chain(tmp_path, seconds, chance, lambda process: process.kill())
    assert_equal(tmp_path / "run", expected)
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(CHAINS))
def test_stopped_at_any_moment_a_resumed_run_is_bit_equal(whole, tmp_path, seed):
    expected, seconds = whole
    chance = random.Random(seed)
    sent = []

    def stop(process):
        sent.append(chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
        process.send_signal(sent[-1])
        if chance.random() < 0.5:  # an impatient user's second one
            time.sleep(chance.uniform(0, 0.2))
            process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
        process.wait(timeout=60)
        # Or it was done before the signal came.
        assert process.returncode in (128 + sent[-1], 0, -sent[-1])

    interrupted_chain(tmp_path, seconds, chance, stop)
    assert_equal(tmp_path / "run", expected)
    metrics = [json.loads(line)
               for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    # No validation is missing: it is told with its step, or as an event of the session after it.
    events = [json.loads(line)
              for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    told = {line["step"] for line in metrics if "val-aux/response_length/mean" in line}
    told |= {event["step"] for event in events if event["type"] == "validation"}
    assert {1, 3} <= told


def test_a_stop_saves_the_boundary_before_the_step_and_says_so_at_once(tmp_path):
    directory = tmp_path / "run"
    # A step of a minute or more: nothing but giving it up ends it within seconds.
    arguments = ("train", write_config(tmp_path), "--run-dir", directory,
                 "data.max_response_length=[[0, 8], [2, 480]]", "+actor_rollout_ref.rollout.n=256",
                 "actor_rollout_ref.rollout.ignore_eos=true",
                 "cluster.memory_per_device=2GiB")
    process = start(*arguments)
    for line in process.stdout:
        if line.startswith("step 2/"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert "Stopping: what step 3 " in process.stderr.readline() + process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "after step 2" in out and "--resume" in out
    assert checkpoints(directory) == [2]
    assert steps_of(directory) == [0, 1]


@pytest.mark.parametrize("there", [False, True])
def test_a_stop_while_the_job_starts_changes_nothing(tmp_path, there):
    directory = tmp_path / "runs/run"
    # A prompt file that takes seconds to tokenise.
    prompts = tmp_path / "many.jsonl"
    prompts.write_text((ROOT / "assets/prompts/stories.jsonl").read_text() * 3000)
    config = write_config(tmp_path)
    if there:
        assert run("train", config, "--run-dir", directory,
                   "trainer.total_training_steps=1").returncode == 0
    before = sorted(tmp_path.rglob("*"))
    process = start("train", config, "--run-dir", directory, f"data.train_files={prompts}")
    lock = directory / "lock"
    while not lock.exists() or lock.read_text() != str(process.pid):
        assert process.poll() is None
    time.sleep(0.5)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, out + err
    assert "Stopped before the run began" in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("pair", range(PAIRS))
@pytest.mark.parametrize("there", [False, True])
def test_of_two_starts_at_the_same_time_one_is_refused(tmp_path, pair, there):
    directory = tmp_path / "runs/new/run"
    config = write_config(tmp_path)
    if there:
        assert run("train", config, "--run-dir", directory,
                   "trainer.total_training_steps=1").returncode == 0
    chance = random.Random(pair)
    processes = []
    for steps in (2, 3):
        processes.append(start("train", config, "--run-dir", directory,
                               f"trainer.total_training_steps={steps}"))
        time.sleep(chance.choice([0, 0, 0.01, 0.1]))
    ends = [process.communicate(timeout=300) for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 2], [out + err for out, err in ends]
    winner = codes.index(0)
    assert f"in use by process {processes[winner].pid}" in ends[1 - winner][1]
    steps = winner + 2
    assert steps_of(directory) == list(range(steps))
    assert checkpoints(directory) == [steps]
    assert (directory / "hf/model.safetensors").exists()
    asides = [path.name for path in directory.parent.iterdir() if path != directory]
    assert asides == (["run.1"] if there else [])
    if there:
        assert steps_of(directory.parent / "run.1") == [0]


@pytest.mark.parametrize("resume", [(), ("--resume",)])
@pytest.mark.parametrize("names", [["config.yaml"], ["config.yaml", "events.jsonl"],
                                   ["config.yaml", "checkpoints/best.pt"]])
def test_somebodys_folder_with_a_config_is_left_alone(tmp_path, resume, names):
    mine = tmp_path / "mine"
    for name in names:
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("lr: 1")
    refused = run("train", write_config(tmp_path), "--run-dir", mine, *resume)
    assert refused.returncode == 2
    assert "not a run of nereus" in refused.stderr
    assert not (tmp_path / "mine.1").exists()
    left = [str(path.relative_to(mine)) for path in mine.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(names)


@pytest.mark.parametrize("kind", ["file", "dangling", "long", "under a file", "empty"])
def test_a_run_directory_that_cannot_be_is_refused_plainly(tmp_path, kind):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    place = {"long": tmp_path / ("x" * 300), "under a file": tmp_path / "file/run",
             "empty": ""}.get(kind, tmp_path / kind)
    refused = run("train", write_config(tmp_path), "--run-dir", place)
    assert refused.returncode == 2, refused.stderr
    assert "--run-dir" in refused.stderr
    assert not re.search(r"filesystem error|\[/|terminate", refused.stderr)
    assert not (tmp_path / "gone").exists()


def test_a_link_to_a_directory_is_that_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        done = run("train", write_config(tmp_path), "--run-dir", tmp_path / "link",
                   "trainer.total_training_steps=1")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "link").is_symlink()
    assert steps_of(tmp_path / "real") == [0] and steps_of(tmp_path / "real.1") == [0]


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full",
                                     "2>/dev/full >/dev/full"])
def test_standard_streams_that_are_closed_or_full_cost_nothing(tmp_path, streams):
    arguments = " ".join(command("train", write_config(tmp_path), "--run-dir", tmp_path / "run",
                                 "trainer.total_training_steps=2"))
    done = subprocess.run(f"{arguments} {streams}", shell=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0
    assert steps_of(tmp_path / "run") == [0, 1]
    for line in (tmp_path / "run/events.jsonl").read_text().splitlines():
        json.loads(line)
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


def test_time_alone_makes_checkpoints(tmp_path):
    directory = tmp_path / "run"
    done = run("train", write_config(tmp_path), "--run-dir", directory,
               "trainer.save_minutes=0.0001")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["type"] == "checkpoint"] == [0, 1, 2, 3]
    assert checkpoints(directory) == [3, 4]


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
