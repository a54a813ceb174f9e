"""Rewards that hang, crash, eat or leave behind touch their own samples alone, in whole runs."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from program import ROOT, command, run, write_config

MODEL = ROOT / "assets/stories260K"
CONFIG = """
data:
  train_files: {prompts}
  max_prompt_length: 16
  max_response_length: 4
  train_batch_size: {batch}
  shuffle: false
actor_rollout_ref:
  model: {{path: assets/stories260K}}
  actor: {{optim: {{lr: 3.0e-4}}, ppo_mini_batch_size: {batch}}}
  rollout: {{n: 2}}
algorithm: {{adv_estimator: grpo}}
custom_reward_function: {{path: {reward}}}
reward: {{timeout: 5, memory: 300MiB, max_failures: 1, workers: 4}}
trainer: {{total_training_steps: 2, logger: []}}
cluster: {{device: cpu, devices: 1, memory_per_device: 256MiB}}
adaptation: {{enabled: false}}
"""

# What a sample's reward does, and what becomes of the sample.
KINDS = {
    "returns": ("return 0.5", "scored"),
    "truth": ("return True", "scored"),
    "numpy_scalar": ("import numpy; return numpy.float32(0.5)", "scored"),
    "numpy_array": ("import numpy; return {'score': numpy.array([0.5])}", "scored"),
    "contains_itself": ("d = {'score': 0.5}; d['d'] = d; return d", "scored"),
    "coroutine": ("import asyncio\n    async def later(): await asyncio.sleep(0.01); return 0.5\n    return later()",
                  "scored"),
    "changes_folder": ("import os, tempfile; os.chdir(tempfile.mkdtemp()); return 0.5", "scored"),
    "is_where_it_was": ("import os; assert os.getcwd() == HOME; return 0.5", "scored"),
    "leaves_an_alarm": ("import signal; signal.alarm(1); return 0.5", "scored"),
    "leaves_a_thread": ("import threading; threading.Thread(target=time.sleep, args=(1000,)).start(); return 0.5",
                        "scored"),
    "leaves_a_daemon": ("import subprocess; subprocess.Popen('setsid sleep 1000 & sleep 1000', shell=True)\n"
                        "    return 0.5", "scored"),
    "leaves_a_fork": ("import os\n    if os.fork() == 0: time.sleep(1000)\n    return 0.5", "scored"),
    "forks": ("import os; os.fork(); return 0.5", "scored"),
    "keeps_a_pool": ("from concurrent.futures import ProcessPoolExecutor\n    global POOL\n"
                     "    POOL = POOL or ProcessPoolExecutor(1); return POOL.submit(half).result()", "scored"),
    "ends_a_child": ("import multiprocessing\n    child = multiprocessing.get_context('fork').Process(\n"
                     "        target=time.sleep, args=(1000,))\n"
                     "    child.start(); child.terminate(); child.join(); return 0.5", "scored"),
    "prints": ("print('noise ' * 1000000); return 0.5", "scored"),
    "closes_stdout": ("import sys; sys.stdout.close(); return 0.5", "scored"),
    "closes_descriptors": ("import os; os.close(1); os.close(2); return 0.5", "scored"),
    "ignores_signals": ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); return 0.5", "scored"),
    "raises": ("raise ValueError('no answer')", "raised"),
    "exits": ("import sys; sys.exit(0)", "raised"),
    "recurses": ("return recurse()", "raised"),
    "reads_stdin": ("return float(input())", "raised"),
    "returns_none": ("return None", "raised"),
    "returns_text": ("return '0.5'", "raised"),
    "returns_nan": ("return float('nan')", "raised"),
    "returns_huge": ("return 10**400", "raised"),
    "returns_evil": ("return Evil()", "raised"),
    "returns_generator": ("return (i for i in (1,))", "raised"),
    "returns_no_score": ("return {'points': 1}", "raised"),
    "hangs": ("while True: pass", "timeout"),
    "hangs_in_c": ("import ctypes; ctypes.CDLL(None).sleep(1000)", "timeout"),
    "hangs_blocking_signals": ("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
                               "    time.sleep(1000)", "timeout"),
    "hangs_in_a_child": ("import subprocess; subprocess.run(['sleep', '1000'])", "timeout"),
    "leaves": ("import os; os._exit(0)", "died"),
    "leaves_with_a_code": ("import os; os._exit(3)", "died"),
    "segfaults": ("import ctypes; ctypes.string_at(0)", "died"),
    "kills_its_group": ("import os, signal; os.killpg(0, signal.SIGKILL)", "died"),
    "eats_memory": ("blocks = []\n    while True: blocks.append(bytearray(1 << 20))", "died"),
    "eats_at_once": ("return len(bytearray(20 << 30))", "died"),
}
BEGINNING = """import os
import time

HOME = os.getcwd()
POOL = None


class Evil:
    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")

    def __reduce__(self):
        os._exit(3)


def half():
    return 0.5


def recurse():
    return recurse()


"""


def reward_text(kinds):
    functions = "".join(f"def {name}():\n    {text}\n\n\n" for name, (text, _) in kinds.items())
    return BEGINNING + functions + "def compute_score(data_source, solution_str, ground_truth, extra_info):\n" \
                                   "    return globals()[extra_info['kind']]()\n"


def make_job(folder, kinds):
    """A config whose step has one prompt of each kind."""
    prompts, reward = folder / "prompts.jsonl", folder / "rewards.py"
    prompts.write_text("".join(json.dumps({"prompt": "Once upon a time", "extra_info": {"kind": kind}}) + "\n"
                               for kind in kinds))
    reward.write_text(reward_text(kinds))
    return write_config(folder, CONFIG.format(prompts=prompts, batch=len(kinds), reward=reward))


def start(folder, *arguments):
    """The program with a mark in its environment, which all that it starts inherits."""
    return subprocess.Popen(command(*arguments), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=os.environ | {"NEREUS_TEST_MARK": str(folder)})


def finish(process):
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def marked(folder):
    """Processes that a marked program has started, or is."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"NEREUS_TEST_MARK={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()[:80]}")
        except OSError:
            pass
    return found


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def count(*outcomes):
    return 2 * sum(outcome in outcomes for _, outcome in KINDS.values())


def test_each_kind_touches_its_own_samples_alone(tmp_path):
    config = make_job(tmp_path, KINDS)
    done = finish(start(tmp_path, "train", config, "--run-dir", tmp_path / "run", "trainer.total_training_steps=1",
                        f"trainer.rollout_data_dir={tmp_path / 'rollouts'}"))
    assert done.returncode == 0, done.stderr
    assert marked(tmp_path) == []
    kept = [json.loads(line) for line in (tmp_path / "rollouts/1.jsonl").read_text().splitlines()]
    scored = {kind: row["score"] is not None for kind, row in zip([k for k in KINDS for _ in range(2)], kept)}
    assert scored == {kind: outcome == "scored" for kind, (_, outcome) in KINDS.items()}
    row, = metrics(tmp_path / "run")
    assert row["reward/failures"] == count("raised", "timeout", "died")
    assert row["reward/timeouts"] == count("timeout")
    assert row["reward/crashes"] == count("died")
    # What strangers print is no part of our output, and no flood.
    assert "noise" in done.stderr and len(done.stderr) < 1 << 18
    assert "noise" not in done.stdout
    assert done.stderr.count("rewards.py: compute_score: ") == 1, "the first reason, once"
    # Nothing holds the run directory.
    again = finish(start(tmp_path, "train", config, "--run-dir", tmp_path / "run", "--resume"))
    assert again.returncode == 0, again.stderr
    assert [row["reward/failures"] for row in metrics(tmp_path / "run")] == [count("raised", "timeout", "died")] * 2
    assert marked(tmp_path) == []


def test_too_many_failures_stop_the_run_with_the_first_reason(tmp_path):
    config = make_job(tmp_path, {"raises": KINDS["raises"], "returns": KINDS["returns"]})
    done = finish(start(tmp_path, "train", config, "--run-dir", tmp_path / "run", "reward.max_failures=0.4"))
    assert done.returncode == 2
    assert "failed on 2 of 4 samples" in done.stderr
    assert "ValueError: no answer (rewards.py line " in done.stderr
    assert marked(tmp_path) == []


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hanging_job(folder):
    """Started, and hanging in the reward of its second step."""
    config = make_job(folder, {"waits": (f"open({str(folder / 'called')!r}, 'a').write('x')\n"
                                         f"    while len(open({str(folder / 'called')!r}).read()) > 2: pass\n"
                                         "    return 0.5", "scored")})
    process = start(folder, "train", config, "--run-dir", folder / "run", "reward.timeout=1000", "reward.workers=1")
    wait_for(lambda: (folder / "called").exists() and len((folder / "called").read_text()) > 2)
    return config, process


def test_a_hanging_reward_does_not_keep_the_job_from_stopping(tmp_path):
    config, process = hanging_job(tmp_path)
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step_1"]
    assert marked(tmp_path) == []
    (tmp_path / "called").write_text("")
    assert finish(start(tmp_path, "train", config, "--run-dir", tmp_path / "run", "--resume")).returncode == 0


def test_a_killed_job_leaves_no_process_behind(tmp_path):
    _, process = hanging_job(tmp_path)
    assert len(marked(tmp_path)) > 1
    process.kill()
    finish(process)
    wait_for(lambda: not marked(tmp_path))


@pytest.mark.parametrize("text, reason", {
    "syntax": ("def compute_score(:\n", "SyntaxError"),
    "missing": ("def score(**row): return 1\n", "no function compute_score"),
    "no_function": ("compute_score = 3\n", "no function compute_score"),
    "exits": ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
    "leaves": ("import os\nos._exit(0)\n", "exit code 0"),
    "segfaults": ("import ctypes\nctypes.string_at(0)\n", "SIGSEGV"),
    "hangs": ("while True: pass\n", "took longer than 3 s"),
}.values())
def test_a_file_that_cannot_be_loaded_is_refused_before_the_run(tmp_path, text, reason):
    config = make_job(tmp_path, {"returns": KINDS["returns"]})
    (tmp_path / "rewards.py").write_text(text)
    for arguments in (["check", config], ["train", config, "--run-dir", tmp_path / "run"]):
        done = finish(start(tmp_path, *arguments, "reward.timeout=0.3"))
        assert done.returncode == 2
        assert "rewards.py cannot be loaded: " in done.stderr and reason in done.stderr
        assert marked(tmp_path) == []
    assert not (tmp_path / "run").exists()


def test_check_tries_the_reward_in_the_pool(tmp_path):
    config = make_job(tmp_path, {"hangs": KINDS["hangs"], "returns": KINDS["returns"]})
    done = finish(start(tmp_path, "check", config, "reward.timeout=1", "reward.max_failures=0.5"))
    assert done.returncode == 0, done.stderr
    assert "1 of 2 prompts" in done.stdout and "took longer than 1 s (reward.timeout)" in done.stdout
    assert marked(tmp_path) == []


def test_calls_run_side_by_side(tmp_path):
    log = tmp_path / "workers"
    config = make_job(tmp_path, {f"waits{i}": (f"time.sleep(0.5); open({str(log)!r}, 'a').write(f'{{os.getpid()}} ')\n"
                                               "    return 0.5", "scored") for i in range(4)})
    done = run("train", config, "--run-dir", tmp_path / "run", "trainer.total_training_steps=1")
    assert done.returncode == 0, done.stderr
    numbers = log.read_text().split()
    assert len(numbers) == 8 and len(set(numbers)) > 1


def test_a_file_named_like_a_module_that_it_uses(tmp_path):
    config = make_job(tmp_path, {"returns": ("import random; return math.sqrt(0.25) + 0 * random.random()", "scored")})
    for name in ("math", "json"):  # and a neighbour named like one that our own code uses
        (tmp_path / f"{name}.py").write_text("import math\n" + (tmp_path / "rewards.py").read_text())
    (tmp_path / "random.py").write_text("raise ImportError('the wrong one')\n")
    for name in ("math", "json"):
        done = run("train", config, "--run-dir", tmp_path / name, "trainer.total_training_steps=1",
                   f"custom_reward_function.path={tmp_path / name}.py")
        assert done.returncode == 0, done.stderr
        assert metrics(tmp_path / name)[0]["critic/score/mean"] == 0.5


def test_a_changed_folder_does_not_move_the_run(tmp_path):
    config = make_job(tmp_path, {"changes_folder": KINDS["changes_folder"]})
    done = subprocess.run(command("train", config, "--run-dir", "runs/here", f"actor_rollout_ref.model.path={MODEL}"),
                          cwd=tmp_path, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/here/checkpoints/step_2").is_dir()
    assert len(metrics(tmp_path / "runs/here")) == 2
