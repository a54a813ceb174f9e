"""`nereus transition`: what it prints, and that what it runs is what it predicted."""

import json

import pytest

from program import run, write_config

STAGES = [("actor", "generation"), ("actor", "training"), ("critic", "training"), ("reference", "inference")]


def config_of(tmp_path, memory="256MiB"):
    """Four virtual devices."""
    file = write_config(tmp_path)
    text = file.read_text().replace("plan:\n  all: {dp: 2}\n", "")
    file.write_text(text.replace("devices: 2, memory_per_device: 256MiB",
                                 f"devices: 4, memory_per_device: {memory}"))
    return file


def plan_file(file, tp, pp, *units, **exceptions):
    """A plan in which every model-stage has this layout on these units, but for `exceptions` by role."""
    stages = []
    for role, stage in STAGES:
        tp_here, pp_here, units_here = exceptions.get(role, (tp, pp, units))
        stages.append({"role": role, "stage": stage, "tp": tp_here, "pp": pp_here,
                       "units": [[f"0:{device}" for device in unit] for unit in units_here]})
    file.write_text(json.dumps({"stages": stages}))
    return file


@pytest.fixture(name="plans")
def two_plans(tmp_path):
    """Two replicas cut by tensor parallelism, and two cut by pipeline parallelism."""
    return (plan_file(tmp_path / "from.json", 2, 1, [0, 1], [2, 3]),
            plan_file(tmp_path / "to.json", 1, 2, [0, 1], [2, 3]))


def transition(tmp_path, plans, *options):
    done = run("transition", *plans, "--config", config_of(tmp_path), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_json_has_the_promised_keys(tmp_path, plans):
    dag = json.loads(transition(tmp_path, plans, "--json"))
    assert {"primitives", "edges", "peak_bytes", "makespan_s"} <= set(dag)
    assert {"id", "kind", "role", "stage", "sources", "targets", "devices", "bytes_moved", "bytes_resident",
            "predicted_s", "measured_s"} <= set(dag["primitives"][0])
    assert dag["primitives"] and all(edge["from"] < edge["to"] for edge in dag["edges"])
    assert dag["primitives"][0]["measured_s"] is None


def test_unfused_uses_the_four_primitives_and_moves_no_less(tmp_path, plans):
    fused = json.loads(transition(tmp_path, plans, "--json"))
    unfused = json.loads(transition(tmp_path, plans, "--json", "--unfused"))
    assert "route" in {primitive["kind"] for primitive in fused["primitives"]}
    kinds = {primitive["kind"] for primitive in unfused["primitives"]}
    assert kinds & {"split", "merge"} and kinds <= {"split", "merge", "extend", "destroy"}

    def moved(dag):
        return sum(primitive["bytes_moved"] for primitive in dag["primitives"])
    assert 0 < moved(fused) <= moved(unfused)


@pytest.mark.parametrize("options", [[], ["--unfused"]])
def test_run_measures_what_was_predicted(tmp_path, plans, options):
    dag = json.loads(transition(tmp_path, plans, "--run", "--json", *options))
    assert dag["run"]["verified"]
    assert all(primitive["measured_s"] > 0 for primitive in dag["primitives"])
    assert dag["run"]["moved_bytes"] == sum(primitive["bytes_moved"] for primitive in dag["primitives"])
    assert dag["run"]["moved_bytes"] > 0
    peaks = {device: peak for device, peak in dag["run"]["peak_bytes"].items() if peak > 0}
    assert len(peaks) == 4
    for device, measured in peaks.items():
        assert measured <= dag["peak_bytes"].get(device, 0) <= 256 << 20, device


def test_text_shows_bytes_memory_and_proof(tmp_path, plans):
    text = transition(tmp_path, plans, "--run")
    for words in ("move between devices", "256 MiB", "measured", "bit-equal"):
        assert words in text


def test_dot_is_graphviz(tmp_path, plans):
    assert transition(tmp_path, plans, "--dot").startswith("digraph")


def test_equal_plans_move_nothing(tmp_path, plans):
    assert "Nothing moves" in transition(tmp_path, (plans[0], plans[0]))


def test_a_bad_plan_is_named(tmp_path, plans):
    bad = plan_file(tmp_path / "bad.json", 2, 1, [0, 7])
    done = run("transition", plans[0], bad, "--config", config_of(tmp_path))
    assert done.returncode == 2
    assert "bad.json" in done.stderr and "0:7" in done.stderr


def test_what_does_not_fit_says_where_and_what_to_do(tmp_path, plans):
    done = run("transition", *plans, "--config", config_of(tmp_path, memory="1MiB"))
    assert done.returncode == 3, done.stdout + done.stderr
    for words in ("0:", "MiB", "cluster.memory_per_device"):
        assert words in done.stderr
