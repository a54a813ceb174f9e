"""Figure 10a on public measurements: calibrate on every other row, predict the rest.

    NEREUS_COST_FIT=build/bench/nereus_cost_fit \\
        python bench/cost_fit/run.py --data DIR --output bench/results

Writes cost_fit.json (accuracy, efficiencies and what explains each misfit), cost_fit.csv (held-out
rows) and, if matplotlib is there, cost_fit.png. DIR: see tables.py.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# What the tables show and the model does not know.
NOTES = {
    "vidur": "The clock has ticks of 1 us: 3 us may be 2.5 or 3.5. Normalisations take a floor of 4 to 5 "
             "us or their bytes, whichever is more, not the sum (and read from cache what fits it), "
             "and the 70B matrix products on H100 get slower again from about 1,000 tokens on (the "
             "power limit, probably). Even a fit of each operator alone, with two or three "
             "parameters, leaves 8 to 11 %; a block's sum is what a plan's prediction rests on.",
    "all_reduce": "NCCL changes algorithm and protocol with the size; bandwidth, latency and filling "
                  "are one smooth curve. Some groups hold repeated outliers of three times the "
                  "neighbouring sizes.",
    "pairwise_nvlink send_recv": "Between hosts the bandwidth falls from 9 GB/s at 1 MB to below 2 "
                                 "at 8 MB, which no line fits; both platforms have the same file.",
    "nccl": "Eight systems, few sizes each. The share of the filling bound (a third) and its prior were "
            "chosen with these tables in view. GPUDirect-TCPXO rises in steps, and two systems lack "
            "their small-message rates.",
    "megatron_bridge": "Releases differ by up to 15 % on the same configuration; fully sharded data "
                       "parallelism is modelled as ZeRO-1. Rows with context or expert "
                       "parallelism, LoRA and four-bit arithmetic are left out. A held-out row's "
                       "configuration is often taught by another release, and groups have fewer "
                       "rows than classes: prior ratios between classes decide the rest.",
    "torchtitan": "Seven held-out rows of software that one efficiency per class cannot tell apart: "
                  "asynchronous TP hides what plain TP shows, and gathering weights under FSDP is "
                  "not modelled. Rowwise scaling is a group of its own: one row teaches, one is held out.",
    "nemo_rl": "Six rows, three of them held out, of two machines. Operators start from what the H100 "
               "profiles taught. Decoding the 235B model over two hosts takes most of the "
               "prediction, in hops of small all-reduces (which trees instead of rings would shorten) and "
               "launches (which captured graphs would). Expert parallelism's all-to-all, context "
               "parallelism, prompts (taken as 150 tokens) and refit times are missing.",
    "qwen2-7b_math gen": "Steps of equal length differ by up to 75 % (56 s at step 31, 98 s at "
                         "step 106, both 216-222 tokens, with equal longest responses): something "
                         "beside the length changed.",
    "megatron ": "Lengths hardly vary, so R2 says nothing.",
}


def note(table):
    return next((text for part, text in reversed(NOTES.items()) if part in table), "")


def draw(points, target):
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no picture", file=sys.stderr)
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    families = {}
    for point in points:
        family = point["table"].split()[0].split("_math")[0]
        if family == "vidur":
            kind = point["table"].split()[-1]
            family = "vidur operators" if "." in kind else f"vidur {kind}"
        families.setdefault(family, []).append(
            (float(point["measured_s"]), float(point["predicted_s"])))
    figure, axes = plt.subplots(figsize=(6.5, 6))
    for family, pairs in families.items():
        axes.plot(*zip(*pairs), ".", markersize=4, alpha=0.6, label=family)
    ends = [1e-6, 1e3]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends],
                      color="grey", alpha=0.2, label="within 10 %")
    axes.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="predicted (s)",
             title="Held-out rows of public measurements")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(target, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    program = os.environ.get("NEREUS_COST_FIT", "build/bench/nereus_cost_fit")
    here = pathlib.Path(__file__).parent
    with tempfile.NamedTemporaryFile("w", suffix=".json") as rows:
        subprocess.run([sys.executable, here / "tables.py", "--data", arguments.data],
                       stdout=rows, check=True)
        subprocess.run([program, "--input", rows.name, "--output", arguments.output], check=True)

    record_file = arguments.output / "cost_fit.json"
    record = json.loads(record_file.read_text())
    record["command"] = "python bench/cost_fit/run.py --data DIR --output bench/results"
    for table in record["tables"]:
        table["note"] = note(table["table"])
        held_out = table["held_out"]
        parameters = "+".join(str(fit["parameters"]) for fit in table.get("fits", []))
        print(f"{table['table']:44} {held_out['rows']:5} rows  MAPE {held_out['mape']:6.1%}  "
              f"median {held_out['median']:6.1%}  max {held_out['max']:7.1%}  "
              f"R2 {held_out['r2']:.4f}  parameters {parameters or '(as above)'}")
    record_file.write_text(json.dumps(record, indent=1) + "\n")
    with open(arguments.output / "cost_fit.csv", newline="") as file:
        draw(list(csv.DictReader(file)), arguments.output / "cost_fit.png")


if __name__ == "__main__":
    main()
