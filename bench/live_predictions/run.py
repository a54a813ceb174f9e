"""Predictions against live runs on virtual CPU devices: step time and peak memory.

Three parts. "quickstart": examples/quickstart.yaml as it is; each step from the sixth on was forecast by the
controller before it ran. "plans": random plans (tp, pp, dp, micro-batch and recomputation of each model-stage drawn
on their own) on two to six devices; five steps to learn from, then the next ones are predicted. "choices": in each
setting the job learns from five steps under the plan that the planner starts with; the planner then chooses, and its
choice, its best runners-up and random plans run in turns. Step times are medians.

    python bench/live_predictions/run.py [--parts quickstart plans choices]

Needs the programs nereus and nereus_live_predictions (cmake --build --preset release), and matplotlib for the
picture. Writes live_predictions.json, .csv and .png. Timings want a machine that does nothing else: on a busy one,
start it with high priority (nice -n -20).
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NEREUS_BUILD", ROOT / "build/release"))
LEARNED_FROM = 5
LENGTHS = [32, 48, 64, 96, 128, 192]
# Devices, response length, prompts and responses a prompt, memory per device.
SETTINGS = [(2, 32, 4, 8, "64MiB"), (2, 96, 4, 8, "64MiB"), (2, 128, 4, 4, "64MiB"), (2, 192, 4, 4, "20MiB"),
            (3, 64, 4, 6, "64MiB"), (3, 128, 6, 4, "24MiB"), (4, 32, 8, 8, "26MiB"), (4, 64, 4, 4, "64MiB"),
            (4, 128, 4, 8, "26MiB"), (4, 192, 4, 4, "26MiB"), (6, 48, 4, 6, "64MiB"), (6, 128, 4, 6, "20MiB")]


def job(devices, length, prompts=8, responses=8, memory="64MiB"):
    """Overrides of the quickstart: fixed supply and length, responses that always reach the limit."""
    return ["examples/quickstart.yaml", f"cluster.devices={devices}", "cluster.cores=0", f"supply=[[0,{devices}]]",
            f"data.max_response_length={length}", f"data.train_batch_size={prompts}",
            f"actor_rollout_ref.rollout.n={responses}", f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=[]", f"cluster.memory_per_device={memory}",
            "actor_rollout_ref.rollout.ignore_eos=true", "adaptation.allow_recompute=true", "adaptation.verify=false",
            "trainer.total_training_steps=1000000"]


def output_of(command):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def live(*arguments):
    return json.loads(output_of([BUILD / "bench/nereus_live_predictions", *arguments]))


def worst(predicted, measured):
    """Predicted / measured peak - 1 of the device that is furthest off, and of the one most underestimated."""
    errors = [predicted[device] / measured[device] - 1 for device in measured if measured[device] > 0]
    return max(errors, key=abs), min(errors)


def judged(plan):
    """What is said of one plan in the record."""
    plan["step_s"] = statistics.median(plan["measured_s"])
    plan["error"] = plan["predicted_s"] / plan["step_s"] - 1
    plan["held"] = plan["low_s"] <= plan["step_s"] <= plan["high_s"]
    plan["peak_error"], plan["peak_short"] = worst(plan["predicted_peak"], plan["measured_peak"])
    plan["cold_peak_error"], plan["cold_peak_short"] = worst(plan["uncalibrated_peak"], plan["measured_peak"])
    for node in plan["nodes"].values():
        node["measured_s"] = statistics.median(node["measured_s"])
    return plan


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def quickstart():
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / "run"
        output_of([BUILD / "apps/nereus/nereus", "train", "examples/quickstart.yaml", "--run-dir", run])
        metrics = {line["step"]: line for line in lines(run / "metrics.jsonl")}
        events = lines(run / "events.jsonl")
        summary = json.loads((run / "summary.json").read_text())
    steps = []
    for event in events:
        if event["type"] != "decision" or not event["next"] or event["step"] + 1 < LEARNED_FROM:
            continue
        measured, forecast = metrics[event["step"] + 1], event["next"]
        peak_error, peak_short = worst(forecast["peak_bytes"], measured["peak_bytes"])
        steps.append({"step": event["step"] + 1, "moved": event["verdict"] == "admitted",
                      "predicted_s": forecast["step_s"], "step_s": measured["timing_s/step"],
                      "error": forecast["step_s"] / measured["timing_s/step"] - 1,
                      "held": forecast["step_s_low"] <= measured["timing_s/step"] <= forecast["step_s_high"],
                      "peak_error": peak_error, "peak_short": peak_short})
    return {"steps": steps, "wall_s": summary["wall_s"], "transitions": len(summary["transitions"])}


def random_plan(seed):
    devices, length = 2 + seed % 5, LENGTHS[seed % len(LENGTHS)]
    record = live(*job(devices, length), "--random-start", "--seed", seed, "--measure", 5)
    return {"devices": devices, "length": length, "seed": seed} | judged(record["plans"][0])


def choice(number):
    devices, length, prompts, responses, memory = SETTINGS[number]
    record = live(*job(devices, length, prompts, responses, memory), "--best", 6, "--random", 3, "--rounds", 4,
                  "--measure", 1, "--seed", 1 + number)
    plans = [judged(plan) for plan in record["plans"]]
    chosen = next(plan for plan in plans if plan["why"] == "chosen")
    best = min(plans, key=lambda plan: plan["step_s"])
    return {"devices": devices, "length": length, "samples": prompts * responses, "memory_per_device": memory,
            "start": record["start"], "chosen": chosen["plan"], "best": best["plan"], "chosen_s": chosen["step_s"],
            "best_s": best["step_s"], "ratio": chosen["step_s"] / best["step_s"],
            "worst_ratio": max(plan["step_s"] for plan in plans) / best["step_s"], "plans": plans}


def spread(values):
    """Of relative errors: the median and the largest, without sign."""
    return {"median": statistics.median(map(abs, values)), "largest": max(map(abs, values))}


def verdict(rows):
    return {"count": len(rows), "step": spread([row["error"] for row in rows]),
            "held": sum(row["held"] for row in rows) / len(rows),
            "peak": spread([row["peak_error"] for row in rows]),
            "peak_short": min(row["peak_short"] for row in rows)}


def show(name, figures):
    print(f"{name}: {figures['count']} predictions, step off by {figures['step']['median']:.1%} (median), "
          f"{figures['step']['largest']:.1%} (largest), in the interval {figures['held']:.0%}; peak memory off by "
          f"{figures['peak']['median']:.1%} (median), {figures['peak']['largest']:.1%} (largest), "
          f"at worst {figures['peak_short']:+.1%}", flush=True)


def draw(record, target):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (steps, peaks) = plt.subplots(1, 2, figsize=(10, 4.6), constrained_layout=True)
    families = [("quickstart", record.get("quickstart", {}).get("steps", [])), ("random plans", record.get("plans", [])),
                ("other plans than learned from", [plan for each in record.get("choices", []) for plan in each["plans"]])]
    for (name, rows), marker in zip(families, "o^x"):
        steps.plot([row["step_s"] for row in rows], [row["predicted_s"] for row in rows], marker, ms=4, label=name)
        both = [(row["measured_peak"][device] / 2**20, row["predicted_peak"][device] / 2**20)
                for row in rows for device in row.get("measured_peak", {}) if row["measured_peak"][device] > 0]
        if both:
            peaks.plot(*zip(*both), marker, ms=4, label=name)
    for axis, unit, margin in ((steps, "step, s", 0.15), (peaks, "peak of a device, MiB", 0.05)):
        low, high = axis.get_xlim()
        low = max(low, 0.02)
        axis.set_xscale("log"), axis.set_yscale("log")
        axis.plot([low, high], [low, high], "k-", lw=0.8)
        axis.fill_between([low, high], [low * (1 - margin), high * (1 - margin)],
                          [low * (1 + margin), high * (1 + margin)], color="0.9", label=f"±{margin:.0%}")
        axis.set_xlabel(f"measured {unit}"), axis.set_ylabel(f"predicted {unit}")
        axis.legend()
    figure.savefig(target, dpi=120)


def write_csv(record, target):
    keys = ["part", "devices", "length", "why", "predicted_s", "step_s", "error", "held", "peak_error", "peak_short", "plan"]
    rows = [row | {"part": "quickstart"} for row in record.get("quickstart", {}).get("steps", [])]
    rows += [row | {"part": "plans"} for row in record.get("plans", [])]
    rows += [plan | {"part": "choices", "devices": each["devices"], "length": each["length"]}
             for each in record.get("choices", []) for plan in each["plans"]]
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["quickstart", "plans", "choices"],
                        choices=["quickstart", "plans", "choices"])
    parser.add_argument("--plans", type=int, default=20, help="random plans")
    parser.add_argument("--settings", type=int, nargs="*", default=range(len(SETTINGS)), help="of the choices")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    record = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
              "command": " ".join(["python", "bench/live_predictions/run.py", *sys.argv[1:]]),
              "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
              "verdicts": {}}
    if "quickstart" in arguments.parts:
        record["quickstart"] = quickstart()
        record["verdicts"]["quickstart"] = verdict(record["quickstart"]["steps"])
        show("quickstart", record["verdicts"]["quickstart"])
    if "plans" in arguments.parts:
        record["plans"] = []
        for seed in range(1, arguments.plans + 1):
            row = random_plan(seed)
            record["plans"].append(row)
            print(f"  {row['devices']} devices, {row['length']} tokens: predicted {row['predicted_s']:.3f} s, "
                  f"measured {row['step_s']:.3f} s ({row['error']:+.1%}), peak {row['peak_error']:+.1%}", flush=True)
        record["verdicts"]["plans"] = verdict(record["plans"])
        show("random plans", record["verdicts"]["plans"])
    if "choices" in arguments.parts:
        record["choices"] = []
        for number in arguments.settings:
            row = choice(number)
            record["choices"].append(row)
            print(f"  {row['devices']} devices, {row['length']} tokens, {row['samples']} samples: chosen "
                  f"{row['chosen_s']:.3f} s, best executed {row['best_s']:.3f} s (ratio {row['ratio']:.3f}), "
                  f"slowest {row['worst_ratio']:.2f}", flush=True)
        record["verdicts"]["choices"] = verdict([plan for each in record["choices"] for plan in each["plans"]])
        record["verdicts"]["choices"]["ratios"] = [each["ratio"] for each in record["choices"]]
        show("plans not learned from", record["verdicts"]["choices"])
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "live_predictions.json").write_text(json.dumps(record, indent=1) + "\n")
    write_csv(record, arguments.output / "live_predictions.csv")
    draw(record, arguments.output / "live_predictions.png")


if __name__ == "__main__":
    main()
