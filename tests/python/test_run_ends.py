"""However a run is stopped, its work is kept and going on is bit-equal; its directory is one run's alone."""

import json
import os
import random
import re
import signal
import subprocess
import time

import pytest
from safetensors.numpy import load_file

from program import ROOT, run, start, write_config
from run_directory import checkpoints, lines, steps_of

# More of each on demand: NEREUS_PAIRS=50 NEREUS_CHAINS=20.
PAIRS = int(os.environ.get("NEREUS_PAIRS", "3"))
CHAINS = int(os.environ.get("NEREUS_CHAINS", "2"))

# Long enough to be hit in any part of it: validations, micro-batches, several updates a step.
VARIED = ("data.val_files=assets/prompts/stories.jsonl", "trainer.test_freq=2",
          "data.max_response_length=24")


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
    metrics = lines(tmp_path / "run/metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    # No validation is missing: it is told with its step, or as an event of the session after it.
    events = lines(tmp_path / "run/events.jsonl")
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
    # The job waits for its reward to be loaded.
    reward = tmp_path / "reward.py"
    reward.write_text("import time\ntime.sleep(60)\n")
    config = write_config(tmp_path)
    if there:
        assert run("train", config, "--run-dir", directory,
                   "trainer.total_training_steps=1").returncode == 0
    before = sorted(tmp_path.rglob("*"))
    process = start("train", config, "--run-dir", directory, "reward.name=", f"custom_reward_function.path={reward}")
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


def test_time_alone_makes_checkpoints(tmp_path):
    directory = tmp_path / "run"
    done = run("train", write_config(tmp_path), "--run-dir", directory,
               "trainer.save_minutes=0.0001")
    assert done.returncode == 0, done.stderr
    events = lines(directory / "events.jsonl")
    assert [event["step"] for event in events if event["type"] == "checkpoint"] == [0, 1, 2, 3]
    assert checkpoints(directory) == [3, 4]
