"""Running the program the way a user does."""

import os
import pathlib
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("NEREUS_BINARY", ROOT / "build/release/apps/nereus/nereus"))

# Who starts the tests in the background (`./test &`, nohup) has these ignored, and so would the program.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# Small enough for a test: two prompts, four responses, a fixed plan on two virtual devices.
SMALL = """
data:
  train_files: assets/prompts/stories.jsonl
  max_prompt_length: 16
  max_response_length: 8
  train_batch_size: 2
actor_rollout_ref:
  model: {path: assets/stories260K}
  actor: {optim: {lr: 3.0e-4}, ppo_mini_batch_size: 1}
  rollout: {n: 4}
critic:
  model: {path: assets/stories260K}
  optim: {lr: 3.0e-4}
algorithm: {use_kl_in_reward: true, lam: 0.95}
reward: {name: vader_sentiment, lexicon: assets/vader/vader_lexicon.txt, sign: -1}
trainer: {total_training_steps: 4}
cluster: {device: cpu, devices: 2, memory_per_device: 256MiB}
plan:
  all: {dp: 2}
adaptation: {enabled: false}
"""


def command(*arguments):
    return [str(BINARY), *map(str, arguments)]


def run(*arguments):
    """The finished process: returncode, stdout, stderr."""
    return subprocess.run(command(*arguments), cwd=ROOT, text=True, capture_output=True,
                          timeout=300, check=False)


def start(*arguments, **options):
    """The running process; options are those of Popen."""
    return subprocess.Popen(command(*arguments), text=True,
                            **{"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options)


def write_config(directory, text=SMALL):
    file = directory / "small.yaml"
    file.write_text(text)
    return file
