"""`nereus explain` of what is no record of a run."""

import pytest

from program import run


@pytest.mark.parametrize("events, words", [
    ("garbage\nmore\n", "line 1 is no event of a run"),
    ("garbage", "holds no event of a run"),
    ('{"type": "transition", "step": 1}\n', "an event is not as a run writes it"),
])
def test_explain_of_a_file_that_no_run_wrote(tmp_path, events, words):
    file = tmp_path / "events.jsonl"
    file.write_text(events)
    done = run("explain", tmp_path)
    assert done.returncode == 2, done.stdout
    assert f"error: {file}: {words}" in done.stderr


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"type": "fault", "step": 1, "message": "lost"}\n{"type": "fau')
    done = run("explain", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fault: lost" in done.stdout
