"""Figure 10b: how long it takes to select a plan, and that it is the best one, against SCIP.

A PPO job with 8B models on 32 to 1,024 GPUs (h200x8): actor generation and training, critic training, reference
inference. "Colocated" plans let all model-stages begin with the same device; "side by side" ones may also give them
devices of their own. Candidates are predicted once (costing_s); selection is the exact search over them for the best
plan (selection_s), and with 8 runners-up that lay out the actor differently (ranking_s): CPU time, the fastest of many
calls in a fresh process. report_s is all that `nereus plan` asks of the planner: costing, the best plan, runners-up,
the best under each layout, and three more jobs and clusters to say what would help. SCIP solves the colocated selection
(scip.py): its time is CPU time without the building of the model; filter_s is what it takes to leave out what cannot
be best. Peak memory is VmHWM when the plan is found.

    python bench/plan_search/run.py [--sizes 32 64 …] [--scip-sizes 32 64 …] [--time-limit 60]

Needs the program (cmake --build --preset release --target nereus_plan_search), and
`pip install pyscipopt numpy matplotlib` in any environment. Writes plan_search.json, .csv and .png.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("NEREUS_PLAN_SEARCH", str(ROOT / "build/release/bench/nereus_plan_search"))
PAPER = {"32": {"selection_s": 0.17e-3, "scip_s": 3.4e-3}, "1024": {"selection_s": 0.338, "scip_s": 511}}
KEYS = ["candidates", "costing_s", "first_selection_s", "selection_s", "selection_median_s", "ranking_s", "report_s",
        "step_s", "peak_bytes"]


def output_of(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(devices, arguments):
    plan = [BINARY, "--devices", str(devices)]
    row = {"devices": devices, "side_by_side": output_of(plan), "scip": None}
    if devices not in arguments.scip_sizes:
        return row | {"colocated": output_of([*plan, "--colocated"])}
    with tempfile.TemporaryDirectory() as directory:
        instance = str(pathlib.Path(directory) / "instance.json")
        row["colocated"] = output_of([*plan, "--colocated", "--instance", instance])
        row["scip"] = output_of([sys.executable, str(pathlib.Path(__file__).with_name("scip.py")), instance,
                                 "--time-limit", str(arguments.time_limit)])
    return row


def show(row):
    scip = row["scip"] or {}
    print(f"{row['devices']:5d}", end="")
    for kind in ("colocated", "side_by_side"):
        plan = row[kind]
        print(f"  {1e3 * plan['selection_s']:8.3f} ms ({1e3 * plan['ranking_s']:.3f}) {plan['step_s']:8.3f} s "
              f"{plan['candidates']:6d} candidates in {plan['costing_s']:6.3f} s, report {plan['report_s']:6.3f} s "
              f"{plan['peak_bytes'] / 1e6:5.1f} MB", end="")
    if scip:
        print(f"  SCIP {scip['time_s']:8.2f} s {scip['step_s']} {scip['status']}", end="")
    print(flush=True)


def write_csv(rows, target):
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["devices", *(f"{kind}_{key}" for kind in ("colocated", "side_by_side") for key in KEYS),
                         "scip_s", "scip_filter_s", "scip_step_s", "scip_lower_bound_s", "scip_status"])
        for row in rows:
            scip = row["scip"] or {}
            writer.writerow([row["devices"],
                             *(row[kind][key] for kind in ("colocated", "side_by_side") for key in KEYS),
                             *(scip.get(key) for key in ("time_s", "filter_s", "step_s", "lower_bound_s", "status"))])


def draw(rows, limit, target):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.4), constrained_layout=True)
    devices = [row["devices"] for row in rows]
    for kind, style, label in (("colocated", "o-", "Nereus"), ("side_by_side", "o--", "Nereus, side by side too")):
        axis.loglog(devices, [row[kind]["selection_s"] for row in rows], style, label=label)
    solved = [row for row in rows if row["scip"]]
    axis.loglog([row["devices"] for row in solved], [row["scip"]["filter_s"] + row["scip"]["time_s"] for row in solved],
                "s--", label=f"filter and SCIP, at most {limit:g} s")
    axis.plot([32, 1024], [PAPER[size]["selection_s"] for size in ("32", "1024")], "k*", label="paper")
    axis.plot([32, 1024], [PAPER[size]["scip_s"] for size in ("32", "1024")], "k^", label="paper: SCIP")
    axis.set_xlabel("GPUs")
    axis.set_ylabel("plan selection time, s")
    axis.set_xticks(devices, map(str, devices))
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(target, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--scip-sizes", type=int, nargs="*", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--time-limit", type=float, default=60, help="of SCIP, seconds a problem")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    rows = []
    for devices in arguments.sizes:
        rows.append(measure(devices, arguments))
        show(rows[-1])
    for row in rows:
        if row["scip"] and row["scip"]["status"] == "optimal":
            assert abs(row["scip"]["step_s"] / row["colocated"]["step_s"] - 1) < 1e-6, row["devices"]
    record = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
              "command": "bench/plan_search/run.py " + " ".join(sys.argv[1:]),
              "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
              "versions": {"python": platform.python_version()}, "scip_time_limit_s": arguments.time_limit,
              "paper": PAPER, "rows": rows}
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.scip_sizes:
        import pyscipopt
        record["versions"] |= {"pyscipopt": pyscipopt.__version__, "scip": str(pyscipopt.Model().version())}
        draw(rows, arguments.time_limit, arguments.output / "plan_search.png")
    (arguments.output / "plan_search.json").write_text(json.dumps(record, indent=1) + "\n")
    write_csv(rows, arguments.output / "plan_search.csv")


if __name__ == "__main__":
    main()
