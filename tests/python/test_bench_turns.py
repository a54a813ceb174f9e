"""bench/gpu_common/alone.py: who is measured has the machine to itself, and figures are medians over turns."""

import sys

import pytest

from program import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from gpu_common import alone, table  # noqa: E402


def contestant(name, seconds, log):
    values = iter(seconds)

    def measure():
        log.append(name)
        value = next(values)
        return None if value is None else {"step_s": value, "steps": 3, "version": name}
    return measure


def turns(log, a, b, **others):
    def quiet():
        log.append("alone?")
        return {"busy_cores": 0.1}
    return alone.take_turns({"ours": contestant("ours", a, log), "peer": contestant("peer", b, log)}, len(a), alone=quiet,
                            **others)


def test_they_take_turns_and_each_turn_begins_alone():
    log, reports = [], []
    measured = turns(log, [3.0, 1.0, 2.0], [9.0, 9.0, 7.0], report=reports.append)
    assert log == ["alone?", "ours", "alone?", "peer"] * 3
    assert measured["ours"]["step_s"] == 2 and measured["peer"]["step_s"] == 9
    assert [run["step_s"] for run in measured["ours"]["runs"]] == [3, 1, 2]
    assert all(run["before"] == {"busy_cores": 0.1} for run in measured["peer"]["runs"])
    assert measured["ours"]["steps"] == 3 and measured["ours"]["version"] == "ours"
    assert len(reports) == 3 and reports[0]["ours"]["step_s"] == 3, "what there is after each round is whole"


def test_a_round_that_would_not_end_in_time_is_not_begun():
    log = []
    measured = turns(log, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], go_on=lambda seconds: log.count("ours") < 2)
    assert log.count("ours") == log.count("peer") == 2
    assert measured["peer"]["step_s"] == 1.5


def test_a_side_that_fails_has_no_figure():
    measured = turns([], [None, None], [1.0, 3.0])
    assert measured["ours"] is None and measured["peer"]["step_s"] == 2


@pytest.mark.parametrize("taken, cores", [([[4000, 0]], 0.0), ([[0, 0], [0, 40]], 0.0), ([[0, 0]], 7.5)])
def test_a_busy_machine_is_no_place_to_measure(taken, cores):
    with pytest.raises(alone.Busy, match="not alone"):
        alone.wait_until_alone(0, gpus=lambda: taken, cores=lambda: cores)


def test_it_waits_for_what_is_about_to_end():
    taken = iter([[[9000, 90]], [[0, 0]]])
    assert alone.wait_until_alone(60, gpus=lambda: next(taken), cores=lambda: None) == {
        "gpu_mib": [0], "gpu_percent": [0], "busy_cores": None}


def test_the_table_takes_the_medians():
    row = turns([], [2.0, 4.0], [6.0, 6.0]) | {"ratio": 2.0}
    assert list(table.of_pairs({"1B": row, "order": ["ours", "peer"]})) == [("1B", "3.00 s", "peer 6.00 s", "2.00×")]
