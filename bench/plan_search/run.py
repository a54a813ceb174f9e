"""Figure 10b: how long it takes to select a plan, and that it is the best one, against SCIP; and what the whole decision
takes of which the selection is a part.

A PPO job with 8B models on 16 to 1,024 GPUs (h200x8): actor generation and training, critic training, reference
inference. "Colocated" plans let all model-stages begin with the same device; "side by side" ones may give each any
contiguous group of devices that src/nereus/core/planner/begins.h admits: from 32 devices on, those at the front or behind
other groups.

Selection is the exact search for the best plan over candidates whose costs are known (selection_s; with 8 runners-up that
lay out the actor differently: ranking_s): the fastest of many calls in a fresh process, the smallest number that can be
given, for it is the problem that SCIP solves (scip.py: its time is without the building of the model; filter_s is
what it takes to leave out what cannot be best).

A decision is what a job waits for when its devices double (decision.h): forecasts, costing of every candidate, the search
with its runners-up, placement, compilation of the transition. decision first_s is the first one of a process, median_s one
of the later ones, parts the medians of its parts. report_s is all that `nereus plan` asks of the planner: costing, the
best plan, runners-up, the best under each layout, and three more jobs and clusters to say what would help.

All times are CPU time of the one thread that does the work; the load average at the end is in the record. Peak memory is VmHWM when the plan is found.

    python bench/plan_search/run.py [--sizes 32 64 …] [--scip-sizes 32 64 …] [--time-limit 60]

Needs the program (cmake --build --preset release --target nereus_plan_search), and
`pip install pyscipopt numpy matplotlib` in any environment. Writes plan_search.json, .csv and .png. Fails if side by side
is slower than colocated, more GPUs than fewer, or if SCIP finds another optimum.
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


DECISION = ["first_s", "median_s"]
KINDS = ("colocated", "side_by_side")


def output_of(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(devices, arguments):
    options = {"colocated": ["--devices", str(devices), "--colocated"], "side_by_side": ["--devices", str(devices)]}
    row = {"devices": devices, "scip": None}
    with tempfile.TemporaryDirectory() as directory:
        instance = str(pathlib.Path(directory) / "instance.json")
        for kind in KINDS:
            row[kind] = output_of([BINARY, *options[kind], *(["--instance", instance] if kind == "colocated" else [])])
            row[kind]["decision"] = output_of([BINARY, *options[kind], "--decision", "--repeats", "7"])
        if devices in arguments.scip_sizes:
            row["scip"] = output_of([sys.executable, str(pathlib.Path(__file__).with_name("scip.py")), instance,
                                     "--time-limit", str(arguments.time_limit)])
    return row


def check(rows):
    """The laws that a wrong search, or a wrong cost, would break."""
    def no_slower(faster, slower, what):
        assert faster["step_s"] <= slower["step_s"] * (1 + 1e-9), what
    for row in rows:
        no_slower(row["side_by_side"], row["colocated"], f"{row['devices']} GPUs: side by side is slower than colocated")
        if row["scip"] and row["scip"]["status"] == "optimal":
            assert abs(row["scip"]["step_s"] / row["colocated"]["step_s"] - 1) < 1e-6, f"{row['devices']}: SCIP disagrees"
    for fewer, more in zip(rows, rows[1:]):
        # Side by side, generation may end up farther away from training.
        no_slower(more["colocated"], fewer["colocated"], f"{more['devices']} GPUs are slower than {fewer['devices']}")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def show(row):
    scip = row["scip"] or {}
    print(f"{row['devices']:5d}", end="")
    for kind in KINDS:
        plan = row[kind]
        print(f"  {1e3 * plan['selection_s']:8.3f} ms ({1e3 * plan['ranking_s']:.3f}) {plan['step_s']:8.3f} s "
              f"{plan['candidates']:6d} candidates in {plan['costing_s']:6.3f} s, decision {plan['decision']['first_s']:6.3f} s "
              f"({plan['decision']['median_s']:.3f}), report {plan['report_s']:6.3f} s "
              f"{plan['peak_bytes'] / 1e6:5.1f} MB", end="")
    if scip:
        print(f"  SCIP {scip['time_s']:8.2f} s {scip['step_s']} {scip['status']}", end="")
    print(flush=True)


def write_csv(rows, target):
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["devices", *(f"{kind}_{key}" for kind in KINDS
                                      for key in (*KEYS, *(f"decision_{each}" for each in DECISION))),
                         "scip_s", "scip_filter_s", "scip_step_s", "scip_lower_bound_s", "scip_status"])
        for row in rows:
            scip = row["scip"] or {}
            writer.writerow([row["devices"],
                             *(value for kind in KINDS for value in (*(row[kind][key] for key in KEYS),
                                                                     *(row[kind]["decision"][key] for key in DECISION))),
                             *(scip.get(key) for key in ("time_s", "filter_s", "step_s", "lower_bound_s", "status"))])


def draw(rows, limit, target):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.2, 6), constrained_layout=True)
    devices = [row["devices"] for row in rows]
    for kind, line, label in (("colocated", "-", ""), ("side_by_side", "--", ", side by side too")):
        axis.loglog(devices, [row[kind]["decision"]["first_s"] for row in rows], "v" + line, color="C1",
                    label="Nereus, whole decision, the first" + label)
        axis.loglog(devices, [row[kind]["decision"]["median_s"] for row in rows], "o" + line, color="C0",
                    label="Nereus, whole decision, a later one" + label)
        axis.loglog(devices, [row[kind]["selection_s"] for row in rows], "." + line, color="C2",
                    label="the search alone, again on the same problem" + label)
    solved = [row for row in rows if row["scip"]]
    axis.loglog([row["devices"] for row in solved], [row["scip"]["filter_s"] + row["scip"]["time_s"] for row in solved],
                "s--", color="C3", label=f"SCIP and its filter, instead of the search; at most {limit:g} s")
    axis.plot([32, 1024], [PAPER[size]["selection_s"] for size in ("32", "1024")], "k*", label="paper: plan selection")
    axis.plot([32, 1024], [PAPER[size]["scip_s"] for size in ("32", "1024")], "k^", label="paper: SCIP")
    axis.set_xlabel("GPUs")
    axis.set_ylabel("CPU time, s")
    axis.set_xticks(devices, map(str, devices))
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)
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
    record = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
              "command": "bench/plan_search/run.py " + " ".join(sys.argv[1:]),
              "machine": {"cpu": cpu_name(), "cores": os.cpu_count()},
              "load_average": os.getloadavg()[0],
              "versions": {"python": platform.python_version()}, "scip_time_limit_s": arguments.time_limit,
              "paper": PAPER, "rows": rows}
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.scip_sizes:
        import pyscipopt
        record["versions"] |= {"pyscipopt": pyscipopt.__version__, "scip": str(pyscipopt.Model().version())}
        draw(rows, arguments.time_limit, arguments.output / "plan_search.png")
    (arguments.output / "plan_search.json").write_text(json.dumps(record, indent=1) + "\n")
    write_csv(rows, arguments.output / "plan_search.csv")
    check(rows)


if __name__ == "__main__":
    main()
