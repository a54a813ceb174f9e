"""SmolLM2 on word problems with PPO, once with devices that leave and come back and once in one plan: the same rewards?

  run.py --build build/release --model models/SmolLM2-135M-Instruct --output bench/results/h200x2

Needs two GPUs and the converted model (tools/convert_gguf.py). Writes adaptive.json, adaptive.png and adaptive_explain.txt
(every decision with its reasons); prints one line of JSON.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REWARD, STEP = "critic/rewards/mean", "timing_s/step"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def train(build, run, model, overrides):
    subprocess.run([build / "apps/nereus/nereus", "train", ROOT / "examples/arithmetic.yaml", "--run-dir", run,
                    f"actor_rollout_ref.model.path={model}", f"critic.model.path={model}", *overrides],
                   check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def compare(adaptive, static, steps, supply):
    """What two run directories have in common and what not."""
    rows = {name: lines(run / "metrics.jsonl") for name, run in (("adaptive", adaptive), ("static", static))}
    third = steps // 3
    record = {"steps": steps, "supply": supply}
    for name, metrics in rows.items():
        record[name] = {
            "reward_by_third": [statistics.mean(row[REWARD] for row in metrics[i:i + third]) for i in range(0, steps, third)],
            "step_s_by_third": [statistics.median(row[STEP] for row in metrics[i:i + third])
                                for i in range(0, steps, third)],
            "total_s": sum(row[STEP] for row in metrics)}
    summary = json.loads((adaptive / "summary.json").read_text())
    record["transitions"] = [
        {key: transition[key] for key in ("step", "predicted_s", "measured_s", "moved_bytes", "verified") if key in transition}
        for transition in summary["transitions"]]
    record["step_time_forecasts"] = summary["forecasts"]
    return record, rows


def draw(rows, supply, file):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (rewards, seconds) = plt.subplots(2, 1, sharex=True, figsize=(8, 5))
    for name, metrics in rows.items():
        steps = range(1, len(metrics) + 1)
        rewards.plot(steps, [row[REWARD] for row in metrics], label=name)
        seconds.plot(steps, [row[STEP] for row in metrics], label=name)
    for axis in (rewards, seconds):
        for step, _ in supply[1:]:
            axis.axvline(step + 0.5, color="grey", linestyle=":")
    rewards.set_ylabel("share of right answers")
    seconds.set(ylabel="step (s)", xlabel="step; dotted: devices of the adaptive run become "
                + ", ".join(str(count) for _, count in supply[1:]), ylim=(0, None))
    rewards.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--model", default=str(ROOT / "models/SmolLM2-135M-Instruct"))
    parser.add_argument("--steps", type=int, default=36, help="devices leave after a third and return after two")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results/h200x2")
    arguments = parser.parse_args()
    third = arguments.steps // 3
    supply = [[0, 2], [third, 1], [2 * third, 2]]
    common = [f"trainer.total_training_steps={arguments.steps}",
              f"data.max_response_length=[[0,64],[{third},96],[{2 * third},128]]"]
    with tempfile.TemporaryDirectory() as directory:
        adaptive, static = pathlib.Path(directory) / "adaptive", pathlib.Path(directory) / "static"
        train(arguments.build, adaptive, arguments.model, [*common, f"supply={json.dumps(supply)}"])
        train(arguments.build, static, arguments.model,
              [*common, "supply=null", "adaptation.enabled=false", "plan={all: {dp: 2}}"])
        record, rows = compare(adaptive, static, arguments.steps, supply)
        explained = subprocess.run([arguments.build / "apps/nereus/nereus", "explain", adaptive], check=True, cwd=ROOT,
                                   capture_output=True, text=True).stdout
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "adaptive.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.output / "adaptive_explain.txt").write_text(explained)
    draw(rows, supply, arguments.output / "adaptive.png")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
