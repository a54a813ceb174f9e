"""A reward that waits delays no pass over devices: seen in the spans, not in the time of a step."""

import json

from program import SMALL, run, write_config

REWARD = "reward: {name: vader_sentiment, lexicon: assets/vader/vader_lexicon.txt, sign: -1}"
SLEEPING = """
import time

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    time.sleep(0.5)
    return len(solution_str) / 100
"""


def spans_by_step(trace):
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    steps = []
    for event in (event for event in trace if event["ph"] == "X"):
        row = rows[event["tid"]]
        if row == "steps":
            steps.append({})
        elif row == "host" or row.startswith("device "):
            steps[-1][event["name"]] = (event["ts"], event["ts"] + event["dur"])
    return steps


def test_passes_run_while_the_reward_waits(tmp_path):
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    file = write_config(tmp_path, SMALL.replace(REWARD, f"custom_reward_function: {{path: {tmp_path / 'sleeping.py'}}}"))
    done = run("train", file, "--run-dir", tmp_path / "run", "trainer.total_training_steps=3")
    assert done.returncode == 0, done.stderr
    steps = spans_by_step(json.loads((tmp_path / "run/trace.json").read_text()))
    assert len(steps) == 3
    for spans in steps:
        begin, end = spans["reward"]
        assert end - begin >= 0.5e6
        for name in ("old_log_prob", "ref", "values"):
            assert spans[name][0] < end, f"{name} waited for the reward"
        # In the order of the workflow all of them could have waited for the reward, but for one.
        assert spans["gen"][1] <= begin and spans["adv"][0] >= end
