"""Throughput of the quickstart's workload: Nereus under its best fixed plan and under the adaptive run,
against a plain PPO loop over transformers, interleaved on the same machine.

The fixed plan is the planner's choice for the cores that are here, without the quickstart's memory budget (the
transformers loop has none either) and without anything that changes. The adaptive run is the quickstart as it is:
four virtual devices within 26 MiB each, devices that leave and come back, transitions and their proofs included.

    .venv/bin/python bench/cpu_ppo/run.py [--repeats 3] [--steps N]

Writes bench/results/cpu_ppo.json and prints a table.
"""

import argparse
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
CONFIG = ROOT / "examples" / "quickstart.yaml"
BINARY = os.environ.get("NEREUS_BINARY", str(ROOT / "build/release/apps/nereus/nereus"))


def run_nereus(extra, steps):
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / "run"
        command = [BINARY, "train", str(CONFIG),
                   "--run-dir", str(run), *extra]
        if steps:
            command.append(f"trainer.total_training_steps={steps}")
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        return json.loads((run / "summary.json").read_text())


def run_reference(steps):
    command = [sys.executable, str(ROOT / "bench/cpu_ppo/reference_ppo.py"), str(CONFIG)]
    if steps:
        command += ["--steps", str(steps)]
    output = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="default: the config's")
    arguments = parser.parse_args()
    fixed = ["supply=null", "adaptation.enabled=false", "cluster.cores=0", "cluster.memory_per_device=4GiB",
             f"cluster.devices={os.cpu_count()}", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null"]
    runs = {"transformers loop": lambda: run_reference(arguments.steps),
            "nereus, fixed plan": lambda: run_nereus(fixed, arguments.steps),
            "nereus, adaptive": lambda: run_nereus([], arguments.steps)}
    results = {name: [] for name in runs}
    for repeat in range(arguments.repeats):
        for name, run in runs.items():
            results[name].append(run())
            print(f"run {repeat + 1}/{arguments.repeats}  {name:20s} "
                  f"{results[name][-1]['throughput_tok_s']:8.1f} response tokens/s", flush=True)

    medians = {name: statistics.median(r["throughput_tok_s"] for r in rs)
               for name, rs in results.items()}
    peer = medians["transformers loop"]
    print(f"\n{'':20s} {'tokens/s':>10s} {'ratio':>7s} {'reward':>16s}")
    for name, rs in results.items():
        print(f"{name:20s} {medians[name]:10.1f} {medians[name] / peer:7.2f} "
              f"{rs[-1]['reward_first']:+7.3f} → {rs[-1]['reward_last']:+.3f}")
    record = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
              "command": "bench/cpu_ppo/run.py " + " ".join(sys.argv[1:]),
              "machine": {"cpu": platform.processor() or platform.machine(),
                          "cores": os.cpu_count()},
              "medians_tok_s": medians,
              "ratio_to_transformers": {name: value / peer for name, value in medians.items()},
              "runs": results}
    target = ROOT / "bench" / "results" / "cpu_ppo.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nwritten to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
