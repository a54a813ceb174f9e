"""How close a step of model-stages side by side comes to its critical path, and to its prediction.

The quickstart's job on four virtual CPU devices under three plans: everything on all devices; the actor on two devices
beside critic and reference on the other two; and actor, critic and reference on devices of their own. For each: the
seconds of a step, the critical path by its spans (from trace.json), and the step's prediction before it ran. A law is
judged: from the sixth step on, the critical path is at least 95 % of the step in the median. Predictions are reported.

    .venv/bin/python bench/side_by_side/run.py [--steps 16] [--output bench/results]
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
LEARNT = 5  # steps after which predictions count
WAITS = {  # what each pass waits for besides its devices
    "gen": [], "old_log_prob": ["gen"], "ref": ["gen"], "values": ["gen"], "reward": ["gen"],
    "adv": ["old_log_prob", "ref", "values", "reward"], "update_critic": ["adv"], "update_actor": ["adv"],
    "update_weights": ["update_actor"]}


def stage(role, kind, devices, micro_batch):
    return {"role": role, "stage": kind, "tp": 1, "pp": 1, "dp": len(devices), "micro_batch": micro_batch,
            "recompute": False, "offload": False, "units": [[f"0:{device}"] for device in devices]}


def plan(generation, actor, critic, reference):
    return {"stages": [stage("actor", "generation", generation, 1), stage("actor", "training", actor, 4),
                       stage("critic", "training", critic, 4), stage("reference", "inference", reference, 4)]}


PLANS = {"colocated": plan([0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]),
         "two groups": plan([0, 1], [0, 1], [2, 3], [2, 3]),
         "three groups": plan([0, 1], [0, 1], [2], [3])}


def critical_path(spans):
    """Seconds of the longest chain of spans of which each waited for the one before it."""
    best = {}
    for name, (start, end, devices) in sorted(spans.items(), key=lambda item: item[1][0]):
        before = [other for other in best if spans[other][1] <= start + 1e-6
                  and (other in WAITS[name] or spans[other][2] & devices)]
        best[name] = end - start + max((best[other] for other in before), default=0)
    return max(best.values())


def steps_of(trace):
    """For each step its seconds and its spans: name -> (start, end, devices)."""
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    steps = []
    for event in (event for event in trace if event["ph"] == "X"):
        row = rows[event["tid"]]
        if row == "steps" and event["name"].startswith("step "):
            steps.append((event["dur"] / 1e6, {}))
        elif row == "host" or row.startswith("device "):
            spans = steps[-1][1]
            start = event["ts"] / 1e6
            known = spans.get(event["name"], (start, start, set()))
            spans[event["name"]] = (start, start + event["dur"] / 1e6, known[2] | ({row} - {"host"}))
    return steps


def measure(name, steps, folder):
    file = folder / f"{name.replace(' ', '_')}.json"
    file.write_text(json.dumps(PLANS[name]))
    run = folder / "run"
    command = ["./nereus", "train", "examples/quickstart.yaml", f"plan={file}", "adaptation.enabled=false",
               "data.max_response_length=48", "supply=[[0, 4]]", f"trainer.total_training_steps={steps}",
               "cluster.memory_per_device=256MiB", "trainer.save_freq=0", "--run-dir", str(run)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    measured = steps_of(json.loads((run / "trace.json").read_text()))[LEARNT:]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    predicted = {event["step"] + 1: event["next"]["step_s"] for event in events
                 if event["type"] == "decision" and event["next"]}
    pairs = [(seconds, predicted[LEARNT + i]) for i, (seconds, _) in enumerate(measured) if LEARNT + i in predicted]
    return {"plan": name, "steps": len(measured),
            "step_s": statistics.median(seconds for seconds, _ in measured),
            "critical_path_share": statistics.median(critical_path(spans) / seconds for seconds, spans in measured),
            "predicted_over_measured": statistics.median(p / m for m, p in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16, help="of each run (default 16)")
    parser.add_argument("--output", type=pathlib.Path, help="folder for side_by_side.json")
    arguments = parser.parse_args()
    results = []
    for name in PLANS:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(name, arguments.steps, pathlib.Path(folder)))
        print(json.dumps(results[-1]), flush=True)
    if arguments.output:
        record = {"machine": platform.platform(), "date": time.strftime("%Y-%m-%d"), "command": " ".join(sys.argv),
                  "results": results}
        (arguments.output / "side_by_side.json").write_text(json.dumps(record, indent=1) + "\n")
    short = [result["plan"] for result in results if result["critical_path_share"] < 0.95]
    if short:
        sys.exit(f"the critical path is less than 95 % of the step: {', '.join(short)}")


if __name__ == "__main__":
    main()
