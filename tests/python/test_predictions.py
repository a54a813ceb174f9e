"""What the controller forecasts of each step, beside what the step then needs."""

import json
import statistics

import pytest

from program import run, write_config


def forecasts(tmp_path, *overrides):
    """Pairs of a decision's forecast and the metrics of the step it was about."""
    done = run("train", write_config(tmp_path), "--run-dir", tmp_path / "run", *overrides,
               "data.max_response_length=48", "actor_rollout_ref.rollout.ignore_eos=true",
               "data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    assert done.returncode == 0, done.stderr
    read = lambda name: [json.loads(line) for line in (tmp_path / "run" / name).read_text().splitlines()]
    metrics = {line["step"]: line for line in read("metrics.jsonl")}
    decisions = [event for event in read("events.jsonl") if event["type"] == "decision"]
    assert decisions[-1]["next"] is None, "no step follows the last one"
    return [(decision["next"], metrics[decision["step"] + 1]) for decision in decisions[:-1]]


@pytest.mark.parametrize("plan", [
    "{all: {dp: 2}}",
    "{all: {tp: 2}}",
    "{all: {pp: 2, micro_batch: 2}}",
    "{all: {dp: 2, micro_batch: 4, recompute: true}}",
    "{all: {dp: 2}, actor/generation: {tp: 2}, critic/training: {pp: 2}}",
])
def test_peak_memory_is_predicted(tmp_path, plan):
    for forecast, step in forecasts(tmp_path, f"plan={plan}"):
        assert set(forecast["peak_bytes"]) == {device for device, peak in step["peak_bytes"].items() if peak > 0}
        for device, predicted in forecast["peak_bytes"].items():
            measured = step["peak_bytes"][device]
            assert measured <= predicted * (1 + HEADROOM), (device, measured / predicted)
            # Predicted are the longest prompts; here micro-batches hold shorter ones too.
            assert predicted == pytest.approx(measured, rel=0.07), device


def test_every_prediction_has_an_interval(tmp_path):
    pairs = forecasts(tmp_path)
    assert len(pairs) == 3
    for forecast, _ in pairs:
        assert 0 < forecast["step_s_low"] < forecast["step_s"] < forecast["step_s_high"]
    summary = json.loads((tmp_path / "run/summary.json").read_text())["forecasts"]
    assert summary["steps"] == 3 and summary["median_error"] >= 0 and 0 <= summary["held"] <= 1
