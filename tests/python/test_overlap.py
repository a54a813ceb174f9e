"""Moving state beside generation, over links made slow, against moving it between steps: the same run, less waiting."""

import json

import pytest

from program import run

# The quickstart's workload in float64, so that no token depends on how many sequences share a matrix product, on devices
# that join one after the other. Whatever a transition costs it is admitted: decisions do not depend on how well it hides.
SETTINGS = ["supply=[[0, 1], [1, 2], [3, 4]]", "data.max_response_length=128", "cluster.memory_per_device=128MiB",
            "cluster.link_bandwidth=64MiB", "adaptation.gamma=1000", "adaptation.efficiency_threshold=1000",
            "trainer.total_training_steps=6", "actor_rollout_ref.model.dtype=float64"]


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directories = {}
    for mode in ("boundary", "overlapped"):
        directories[mode] = tmp_path_factory.mktemp(mode) / "run"
        done = run("train", "examples/quickstart.yaml", "--run-dir", directories[mode],
                   f"adaptation.transition={mode}", *SETTINGS)
        assert done.returncode == 0, done.stderr
    return directories


def transitions(directory):
    return json.loads((directory / "summary.json").read_text())["transitions"]


def test_the_movement_is_hidden(runs):
    moved = [t for t in transitions(runs["overlapped"]) if t["moved_bytes"] > 0]
    assert len(moved) >= 2
    assert all(t["verified"] for t in moved)
    exposed = sum(t["exposed_s"] for t in moved)
    assert exposed <= 0.2 * sum(t["measured_s"] for t in moved)
    assert any(t["moved_bytes"] > 0 for t in transitions(runs["boundary"]))
    for t in transitions(runs["boundary"]):
        assert t["exposed_s"] == t["measured_s"]


def test_the_decisions_are_the_same(runs):
    def decisions(directory):
        return [(t["step"], t["to"]) for t in transitions(directory)]

    # An overlapped transition is reported after the step beside which it ran.
    boundary = [(step + 1, plan) for step, plan in decisions(runs["boundary"])]
    assert decisions(runs["overlapped"]) == boundary


def test_curves_and_weights_are_the_same(runs):
    metrics = [lines(runs[mode] / "metrics.jsonl") for mode in ("boundary", "overlapped")]
    assert len(metrics[0]) == 6
    for a, b in zip(*metrics, strict=True):
        for key in ("critic/score/mean", "actor/ref_kl", "actor/entropy", "critic/vf_loss", "actor/grad_norm"):
            assert b[key] == pytest.approx(a[key], rel=1e-9, abs=1e-12), (a["step"], key)
    models = [(runs[mode] / "hf" / "model.safetensors").read_bytes() for mode in ("boundary", "overlapped")]
    assert models[0] == models[1]
