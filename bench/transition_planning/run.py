"""Figure 13: how long it takes to plan a transition, and how good the plan is, against SCIP.

A PPO job with 8B models on 32 to 1,024 GPUs (h200x8), three transitions (main.cpp): "relayout" changes
training from tp4·pp2 to tp2·pp4, "growth" doubles the devices, "handover" lets the actor grow onto what the
critic gives up. Every measurement is a fresh process: planning time is the median of its later calls, which
reuse the byte tables of the job's models; "cold" is the first one, tables included. SCIP solves the scheduling
problem of the paper's four primitives (scip.py), without their compilation, which is in Nereus' time.

    python bench/transition_planning/run.py [--sizes 32 64 …] [--seeds 3] [--time-limit 60]

Needs the program (cmake --build --preset release --target nereus_transition_planning), and
`pip install pyscipopt matplotlib` in any environment. Writes transition_planning.json, .csv and .png. Fails if a fused
transition takes longer than its four primitives, or any less than SCIP says that it must.
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
BINARY = os.environ.get("NEREUS_TRANSITION_PLANNING", str(ROOT / "build/release/bench/nereus_transition_planning"))
KINDS = ["relayout", "growth", "handover"]
PAPER = {"devices": 1024, "planning_s": 1.22e-3, "scip_s": 120.10, "makespan_gap": 0.069}


def plan(kind, devices, seed, *options):
    command = [BINARY, "--kind", kind, "--devices", str(devices), "--seed", str(seed), *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def solve(instance, time_limit):
    """In a process of its own, so that memory and time of one problem cannot weigh on the next."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("scip.py")), str(instance),
               "--time-limit", str(time_limit)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(kind, devices, arguments):
    seeds = range(arguments.seeds)
    with tempfile.TemporaryDirectory() as directory:
        instance = pathlib.Path(directory) / "instance.json"
        unfused = [plan(kind, devices, seed, "--unfused", *(["--instance", str(instance)] if seed == 0 else []))
                   for seed in seeds]
        fused = [plan(kind, devices, seed) for seed in seeds]
        scip = None if arguments.no_scip else solve(instance, arguments.time_limit)
    row = {"kind": kind, "devices": devices}
    for name, plans in (("unfused", unfused), ("fused", fused)):
        row[name] = {key: statistics.median(p[key] for p in plans)
                     for key in ("planning_s", "planning_cold_s", "makespan_s", "primitives", "edges",
                                 "resource_edges")}
    row["scip"] = scip
    if scip and scip["makespan_s"]:
        # SCIP saw the first seed.
        row["gap_to_scip"] = unfused[0]["makespan_s"] / scip["makespan_s"] - 1
    if scip:
        row["gap_to_lower_bound"] = unfused[0]["makespan_s"] / scip["lower_bound_s"] - 1
    return row


def check(row):
    """The laws that a wrong plan would break."""
    fused, unfused = row["fused"], row["unfused"]
    what = f"{row['kind']} of {row['devices']} devices"
    assert 0 < fused["makespan_s"] <= unfused["makespan_s"] * (1 + 1e-9), f"{what}: fused takes longer"
    assert 0 < fused["primitives"] <= unfused["primitives"], f"{what}: fused has more primitives"
    # The actor can only take over what the critic gives up after it has.
    assert row["kind"] != "handover" or unfused["resource_edges"] > 0, f"{what}: nobody waits for room"
    if row["scip"]:
        assert row["gap_to_lower_bound"] > -1e-6, f"{what}: better than is possible"


def show(row):
    scip = row["scip"] or {}
    found = f"{scip['makespan_s']:8.3f} s" if scip.get("makespan_s") else "   none   "
    gap = f"{row['gap_to_scip']:+7.2%}" if "gap_to_scip" in row else "      -"
    print(f"{row['kind']:9s} {row['devices']:5d}  {1e3 * row['unfused']['planning_s']:8.3f} ms "
          f"{1e3 * row['unfused']['planning_cold_s']:8.3f} ms {1e3 * row['fused']['planning_s']:8.3f} ms  "
          f"{row['unfused']['makespan_s']:8.3f} s {row['fused']['makespan_s']:8.3f} s   "
          f"{scip.get('time_s', float('nan')):8.3f} s {found} {gap}  {scip.get('status', '')}", flush=True)


def write_csv(rows, target):
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "devices", "planning_unfused_s", "planning_unfused_cold_s", "planning_fused_s",
                         "makespan_unfused_s", "makespan_fused_s", "primitives_unfused", "resource_edges_unfused",
                         "scip_s", "scip_best_after_s", "scip_makespan_s", "scip_status", "lower_bound_s"])
        for row in rows:
            scip, unfused, fused = row["scip"] or {}, row["unfused"], row["fused"]
            writer.writerow([row["kind"], row["devices"], unfused["planning_s"], unfused["planning_cold_s"],
                             fused["planning_s"], unfused["makespan_s"], fused["makespan_s"], unfused["primitives"],
                             unfused["resource_edges"],
                             *(scip.get(key) for key in ("time_s", "best_after_s", "makespan_s", "status",
                                                         "lower_bound_s"))])


def draw(rows, target):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (times, spans) = plt.subplots(1, 2, figsize=(11, 4.4), constrained_layout=True)
    for kind, colour in zip(KINDS, plt.get_cmap("tab10").colors):
        mine = [row for row in rows if row["kind"] == kind]
        if not mine:
            continue
        devices = [row["devices"] for row in mine]
        for axis, key in ((times, "planning_s"), (spans, "makespan_s")):
            axis.loglog(devices, [row["unfused"][key] for row in mine], "o-", color=colour, label=f"{kind}: Nereus")
            axis.loglog(devices, [row["fused"][key] for row in mine], "o:", color=colour, alpha=0.6,
                        label=f"{kind}: Nereus, fused")
        solved = [row for row in mine if row["scip"]]
        times.loglog([row["devices"] for row in solved], [row["scip"]["time_s"] for row in solved], "s--",
                     color=colour, label=f"{kind}: SCIP")
        found = [row for row in solved if row["scip"]["makespan_s"]]
        spans.loglog([row["devices"] for row in found], [row["scip"]["makespan_s"] for row in found], "s",
                     color=colour, markerfacecolor="none", markersize=10, label=f"{kind}: SCIP")
    times.plot(PAPER["devices"], PAPER["planning_s"], "k*", label="paper: 1.22 ms")
    times.plot(PAPER["devices"], PAPER["scip_s"], "k^", label="paper: SCIP 120 s")
    times.set_ylabel("planning time, s")
    spans.set_ylabel("predicted makespan, s")
    for axis in (times, spans):
        axis.set_xlabel("GPUs")
        sizes = sorted({row["devices"] for row in rows})
        axis.set_xticks(sizes, map(str, sizes))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    figure.savefig(target, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", type=int, default=3, help="which host is which; SCIP gets the first")
    parser.add_argument("--time-limit", type=float, default=60, help="of SCIP, seconds a problem")
    parser.add_argument("--no-scip", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    print(f"{'':15s}  {'planning':>11s} {'cold':>11s} {'fused':>11s}  {'makespan':>10s} {'fused':>10s}   "
          f"{'SCIP time':>10s} {'makespan':>10s} {'gap':>7s}")
    rows = []
    for kind in arguments.kinds:
        for devices in arguments.sizes:
            rows.append(measure(kind, devices, arguments))
            show(rows[-1])
            check(rows[-1])
    record = {"date": datetime.datetime.now().isoformat(timespec="seconds"),
              "command": "bench/transition_planning/run.py " + " ".join(sys.argv[1:]),
              "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
              "versions": {"python": platform.python_version()}, "scip_time_limit_s": arguments.time_limit,
              "paper": PAPER, "rows": rows}
    if not arguments.no_scip:
        import pyscipopt
        record["versions"] |= {"pyscipopt": pyscipopt.__version__, "scip": str(pyscipopt.Model().version())}
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "transition_planning.json").write_text(json.dumps(record, indent=1) + "\n")
    write_csv(rows, arguments.output / "transition_planning.csv")
    if not arguments.no_scip:
        draw(rows, arguments.output / "transition_planning.png")


if __name__ == "__main__":
    main()
