"""Generation beside vLLM on one GPU, each alone on the machine and in turns (ours, vLLM, ours), with the same lengths and
sampling; writes bench/results/h200x1/generation_vllm.json.

  versus_vllm.py --build build/release --output bench/results/h200x1             all groups
  versus_vllm.py --build build/release --output bench/results/h200x1 small fan   some of them, into the same file

vLLM is imported by the Python that runs this, or by that of --python (with PYTHONPATH, if it lies elsewhere). The long tail
has log-normal lengths (median 400, sigma 1, at most 7,488 tokens), of which 128 sequences at most are in the batch.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu_common"))
import alone  # noqa: E402


def long_tail():
    import numpy
    lengths = numpy.random.default_rng(1).lognormal(numpy.log(400), 1.0, 512)
    return [int(length) for length in numpy.clip(lengths, 16, 8000 - 512)]


def groups():
    """Shape, sequences at once, and cases of each group: what one process of a contestant runs."""
    return {
        "small": ("1b", None, [{"name": "1B 64 x (512 + 512)", "sequences": 64, "new_tokens": 512},
                               {"name": "1B 256 x (512 + 512)", "sequences": 256, "new_tokens": 512}]),
        "big": ("8b", None, [{"name": "8B 64 x (512 + 128)", "sequences": 64, "new_tokens": 128},
                             {"name": "8B 256 x (512 + 128)", "sequences": 256, "new_tokens": 128},
                             {"name": "8B 64 x (512 + 1024)", "sequences": 64, "new_tokens": 1024}]),
        "fan": ("8b", None, [{"name": "8B 32 prompts x 8 x (512 + 128)", "sequences": 256, "responses": 8,
                              "new_tokens": 128}]),
        "long": ("8b", 128, [{"name": "8B 512 x (512 + log-normal), 128 at once", "sequences": 512,
                              "limits": long_tail()}])}


def json_lines(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return lines


def ours(build, shape, at_once, case):
    command = [build / "bench/nereus_gpu_generation", "--shape", shape, "--repeats", 1, "--responses",
               case.get("responses", 1)]
    if at_once:
        command += ["--at-once", at_once]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if "limits" in case:
            json.dump(case["limits"], file)
            file.flush()
            command += ["--limits", file.name]
        else:
            command += ["--sequences", case["sequences"], "--new-tokens", case["new_tokens"]]
        return json_lines(command)[0]


def gpu_name():
    return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                          check=True).stdout.splitlines()[0]


def median_of(runs):
    return {"seconds": statistics.median(run["seconds"] for run in runs), "runs": runs}


def measure(arguments, shape, at_once, cases):
    mine = {case["name"]: [] for case in cases}
    theirs = {case["name"]: [] for case in cases}

    def run_ours():
        for case in cases:
            alone.wait_until_alone()
            mine[case["name"]].append(ours(arguments.build, shape, at_once, case))

    run_ours()
    alone.wait_until_alone()
    for run in json_lines([arguments.python, pathlib.Path(__file__).with_name("vllm_peer.py"), "--shape", shape,
                           "--repeats", 1 if at_once else 2, *(["--at-once", at_once] if at_once else []),
                           *map(json.dumps, cases)]):
        theirs[run["name"]].append(run)
    if not at_once:
        run_ours()
    rows = {}
    for name in mine:
        row = {"ours": median_of(mine[name]), "vLLM": median_of(theirs[name])}
        row["ratio"] = row["vLLM"]["seconds"] / row["ours"]["seconds"]
        rows[name] = row
        print(f"{name}: {row['ours']['seconds']:.3f} s, vLLM {row['vLLM']['seconds']:.3f} s ({row['ratio']:.2f} times as long)",
              flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="with the benches built")
    parser.add_argument("--python", default=sys.executable, help="that has vLLM")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("bench/results/h200x1"))
    parser.add_argument("groups", nargs="*", help=", ".join(groups()))
    arguments = parser.parse_args()
    file = arguments.output / "generation_vllm.json"
    record = json.loads(file.read_text()) if file.exists() else {
        "command": " ".join(sys.argv), "date": datetime.date.today().isoformat(), "cores": os.cpu_count(),
        "gpu": gpu_name(), "torch": importlib.metadata.version("torch")}
    for name in arguments.groups or groups():
        record |= measure(arguments, *groups()[name])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
