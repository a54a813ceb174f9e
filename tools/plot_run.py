"""Draws a run: reward and KL, response length and devices, and the layout of every model-stage over the steps.

    python tools/plot_run.py runs/quickstart quickstart.png

Needs matplotlib: pip install matplotlib
"""

import argparse
import json
import pathlib
import sys


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def plans_by_step(run, steps):
    """For each step, the stages of the plan that was in force."""
    in_force, plans = None, []
    changes = {event["step"]: event["file"] for event in lines(run / "events.jsonl") if event["type"] == "plan"}
    for step in range(steps):
        if step in changes:
            in_force = json.loads((run / changes[step]).read_text())["stages"]
        plans.append(in_force)
    return plans


def plotting():
    """matplotlib.pyplot, which the requirements leave out because nothing else needs it."""
    try:
        import matplotlib
    except ImportError as error:
        sys.exit(f"error: tools/plot_run.py needs matplotlib ({error}); get it with\n"
                 f"    {sys.executable} -m pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt


def draw_layouts(axis, plans, palette):
    names = [f"{stage['role']}/{stage['stage']}" for stage in plans[0]]
    layouts = sorted({(s["tp"], s["pp"], s["dp"]) for plan in plans for s in plan})
    colours = dict(zip(layouts, palette * len(layouts)))
    for row, name in enumerate(names):
        begin = 0
        for step in range(1, len(plans) + 1):
            stage = plans[begin][row]
            layout = (stage["tp"], stage["pp"], stage["dp"])
            if step < len(plans) and (plans[step][row]["tp"], plans[step][row]["pp"], plans[step][row]["dp"]) == layout:
                continue
            axis.barh(row, step - begin, left=begin, color=colours[layout], edgecolor="white")
            axis.text((begin + step) / 2, row, "tp{}·pp{}·dp{}".format(*layout), ha="center", va="center",
                      fontsize=7, color="white")
            begin = step
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("step")


def draw(run, target):
    plt = plotting()
    metrics = lines(run / "metrics.jsonl")
    steps = range(len(metrics))
    plans = plans_by_step(run, len(metrics))
    figure, (top, middle, bottom) = plt.subplots(
        3, 1, figsize=(10, 6.5), sharex=True, height_ratios=(2, 1.2, 1.6), constrained_layout=True)
    top.plot(steps, [m["critic/score/mean"] for m in metrics], label="reward", color="tab:blue")
    if "actor/ref_kl" in metrics[0]:
        top.plot(steps, [m["actor/ref_kl"] for m in metrics], label="KL to the reference, nats a token",
                 color="tab:orange")
    top.legend(loc="upper left")
    middle.step(steps, [m["response_length/mean"] for m in metrics], where="mid", color="tab:green",
                label="mean response length")
    middle.legend(loc="upper left")
    devices = middle.twinx()
    used = [len({d for stage in plan for unit in stage["units"] for d in unit}) for plan in plans]
    devices.step(steps, used, where="mid", color="grey", linestyle="--", label="devices")
    devices.set_ylim(0, max(used) + 1)
    devices.legend(loc="upper right")
    draw_layouts(bottom, plans, plt.get_cmap("tab10").colors)
    figure.savefig(target, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    draw(arguments.run, arguments.target)


if __name__ == "__main__":
    main()
