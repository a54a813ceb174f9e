"""tools/plot_run.py on a machine without matplotlib."""

import os
import subprocess
import sys

from program import ROOT


def plot_run(tmp_path, *arguments):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('No module named matplotlib')\n")
    return subprocess.run([sys.executable, ROOT / "tools/plot_run.py", *arguments], text=True, capture_output=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_help_needs_no_matplotlib(tmp_path):
    done = plot_run(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert "pip install matplotlib" in done.stdout


def test_the_error_says_how_to_get_it(tmp_path):
    done = plot_run(tmp_path, "nowhere", "nowhere.png")
    assert done.returncode == 1
    assert done.stderr.startswith("error: tools/plot_run.py needs matplotlib")
    assert "-m pip install matplotlib" in done.stderr and "Traceback" not in done.stderr
