"""Planning, explaining and help start without PyTorch; what computes with tensors turns into the program that has it."""

import os
import subprocess

import pytest
from program import BINARY, ROOT

QUICKSTART = str(ROOT / "examples/quickstart.yaml")
PLANS = [str(ROOT / "examples/transition" / name) for name in ("from.json", "to.json")]


def loaded_libraries(*arguments):
    """The shared libraries that the dynamic linker looked for, in this program or in one that it turned into."""
    done = subprocess.run([BINARY, *arguments], cwd=ROOT, capture_output=True, text=True, check=True,
                          env=os.environ | {"LD_DEBUG": "libs"})
    libraries = {line.split("find library=")[1].split()[0] for line in done.stderr.splitlines() if "find library=" in line}
    assert libraries, "the dynamic linker said nothing"
    return libraries


@pytest.mark.parametrize("arguments", [
    ["--help"], ["--version"], ["train", "--help"], ["config", "--markdown"], ["config", QUICKSTART],
    ["plan", QUICKSTART], ["plan", QUICKSTART, "--cluster", "h200x8"], ["plan", QUICKSTART, "cluster.hosts=2", "supply=[[0,8]]"],
    ["transition", *PLANS, "--config", QUICKSTART, "cluster.memory_per_device=8MiB"],
], ids=" ".join)
def test_no_torch(arguments):
    assert not [library for library in loaded_libraries(*arguments) if "torch" in library or "c10" in library]


def test_what_computes_has_torch():
    assert [library for library in loaded_libraries("check", QUICKSTART) if "torch" in library]
