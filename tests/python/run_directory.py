"""What a run leaves in its directory."""

import json


def lines(file):
    """The records of a .jsonl file, every line of which must be one."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps_of(directory):
    """The steps in metrics.jsonl."""
    return [line["step"] for line in lines(directory / "metrics.jsonl")]


def checkpoints(directory):
    """The steps after which there is one."""
    return sorted(int(path.name.split("_")[1]) for path in directory.glob("checkpoints/step_*"))
