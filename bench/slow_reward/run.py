"""What a reward that waits costs a step: nothing, as long as passes over devices run beside it.

The quickstart's job on two virtual CPU devices, scored by sleeping.py, with a wait of 0, of half and of twice the time
for which old log-probabilities, the reference and values keep the devices busy after generation. By the spans of the
trace: how long the reward took, how long those passes took beside it, and for how long the step waited for the reward
alone. A law is judged: the reward is hidden behind the passes up to their length, to within 5 % of the step.

    .venv/bin/python bench/slow_reward/run.py [--steps 12] [--output bench/results]
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent
PASSES = ("old_log_prob", "ref", "values")
FIRST = 4  # the steps before it start worker processes
PROMPTS, RESPONSES = 4, 2


def spans_of(run):
    """For each step its seconds and its spans: name -> (start, end)."""
    trace = json.loads((run / "trace.json").read_text())
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    steps = []
    for event in (event for event in trace if event["ph"] == "X"):
        begin, seconds, row = event["ts"] / 1e6, event["dur"] / 1e6, rows[event["tid"]]
        if row == "steps" and event["name"].startswith("step "):
            steps.append((seconds, {}))
        elif row == "host" or row.startswith("device "):
            steps[-1][1][event["name"]] = (begin, begin + seconds)
    return steps


def measure(wait, steps, folder):
    rows = [json.loads(line) for line in (ROOT / "assets/prompts/stories.jsonl").read_text().splitlines()]
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row | {"data_source": str(wait)}) + "\n" for row in rows))
    config = folder / "job.yaml"
    text = (ROOT / "examples/quickstart.yaml").read_text()
    kept = [part for part in text.split("\n\n") if not part.lstrip().startswith("reward:")]
    config.write_text("\n\n".join(kept))
    run = folder / "run"
    subprocess.run(["./nereus", "train", config, f"data.train_files={prompts}", f"data.train_batch_size={PROMPTS}",
                    f"actor_rollout_ref.rollout.n={RESPONSES}", f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS // 2}",
                    "data.max_response_length=96", f"custom_reward_function.path={HERE / 'sleeping.py'}",
                    f"reward.workers={PROMPTS * RESPONSES}", "supply=[[0, 2]]", "cluster.memory_per_device=256MiB",
                    "adaptation.enabled=false", f"trainer.total_training_steps={steps}", "trainer.save_freq=0",
                    "--run-dir", run], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    measured = []
    for seconds, spans in spans_of(run)[FIRST:]:
        begin = min(spans[name][0] for name in PASSES)
        passes = max(spans[name][1] for name in PASSES) - begin
        reward = spans["reward"][1] - spans["reward"][0]
        alone = max(0.0, spans["reward"][1] - begin - passes)
        measured.append({"step_s": seconds, "reward_s": reward, "passes_s": passes, "waited_for_reward_s": alone,
                         "hidden_share": 1 - alone / reward,
                         "beyond_law_share": max(0.0, alone - max(0.0, reward - passes)) / seconds})
    return {"wait_s": wait} | {key: statistics.median(step[key] for step in measured) for key in measured[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="of each run (default 12)")
    parser.add_argument("--output", type=pathlib.Path, help="folder for slow_reward.json")
    arguments = parser.parse_args()
    results = []
    for factor in (0, 0.5, 2):
        wait = round(factor * results[0]["passes_s"], 3) if results else 0
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(wait, arguments.steps, pathlib.Path(folder)))
        print(json.dumps(results[-1]), flush=True)
    if arguments.output:
        record = {"machine": platform.platform(), "date": time.strftime("%Y-%m-%d"), "command": " ".join(sys.argv),
                  "medians": results}
        (arguments.output / "slow_reward.json").write_text(json.dumps(record, indent=1) + "\n")
    if any(result["beyond_law_share"] > 0.05 for result in results):
        sys.exit("the step waits for the reward although passes could have run beside it")


if __name__ == "__main__":
    main()
