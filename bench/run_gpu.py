"""Builds, tests and measures Nereus on the GPUs of this machine beside what people use today, and writes
bench/results/h200xN/*.json and a readable table.md.

  bench/run_gpu.py --build build/release                       everything that N = 1 or 2 GPUs allow
  bench/run_gpu.py --build build/release --only generation     one part

Peers run in the same call, one after the other with ours: transformers, PyTorch FSDP2 and DCP, TRL (pip install trl).
The part `adaptive` needs SmolLM2 in models/ (tools/convert_gguf.py). A part that fails is reported and the others go on.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from gpu_common import table

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
TESTS = ("cuda", "comm", "nn", "engine", "live")  # rooms that behave differently on GPUs


class Bench:
    def __init__(self, build, gpus, output):
        self.build, self.gpus, self.output = build, gpus, output
        self.failed = []

    def ours(self, name, *arguments, timeout=180):
        return self.run([str(self.build / "bench" / f"nereus_{name}"), *map(str, arguments)], timeout)

    def peer(self, script, *arguments, ranks=1, timeout=240):
        launcher = [sys.executable] if ranks == 1 else [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        return self.run([*launcher, str(BENCH / script), *map(str, arguments)], timeout)

    def passes(self, command, timeout, **environment):
        """Whether a command ends well; what it printed last if not."""
        start = time.time()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT,
                                  env=os.environ | environment)
            fine, said = done.returncode == 0, (done.stdout + done.stderr).strip()[-1500:]
        except subprocess.TimeoutExpired:
            fine, said = False, f"no end after {timeout} s"
        print(f"  {time.time() - start:5.1f} s  {'' if fine else 'FAILED '}{' '.join(map(str, command[-4:]))}", flush=True)
        if not fine:
            self.failed.append(" ".join(map(str, command)))
            print(said, flush=True)
        return fine

    def run(self, command, timeout):
        """The last line of JSON that a command prints, or None if it fails."""
        start = time.time()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode == 0 and lines:
                print(f"  {time.time() - start:5.1f} s  {' '.join(command[-6:])}", flush=True)
                return json.loads(lines[-1])
            reason = (done.stderr or done.stdout).strip()[-1500:]
        except subprocess.TimeoutExpired:
            reason = f"no end after {timeout} s"
        self.failed.append(" ".join(command))
        print(f"  FAILED {' '.join(command)}\n{reason}", flush=True)
        return None

    def write(self, name, record):
        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / f"{name}.json").write_text(json.dumps(machine() | record, indent=1) + "\n")


def machine():
    import torch
    import transformers
    return {"date": time.strftime("%Y-%m-%dT%H:%M:%S"), "command": " ".join(sys.argv),
            "machine": {"gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
                        "torch": torch.__version__, "cuda": torch.version.cuda,
                        "transformers": transformers.__version__}}


def ratio(ours, peer, key):
    return None if ours is None or peer is None else round(ours[key] / peer[key], 3)


def build(bench):
    if not (bench.build / "build.ninja").exists():
        bench.passes(["cmake", "-S", ROOT, "-B", bench.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], 120)
    bench.passes(["ninja", "-C", bench.build], 1200)


def tests(bench):
    """The rooms' own tests, with devices on the GPUs, and parity with transformers."""
    devices = "cuda:" + ",".join(map(str, range(bench.gpus)))
    for room in TESTS:
        bench.passes([bench.build / f"src/nereus/{room}/{room}_test"], 300, NEREUS_TEST_DEVICES=devices)
    bench.passes([sys.executable, "-m", "pytest", "-q", ROOT / "tests/parity"], 900, NEREUS_PARITY_DEVICE="cuda",
                 NEREUS_PARITY=str(bench.build / "apps/parity/nereus_parity"))


def transitions(bench):
    if bench.gpus < 2:
        return
    record = {}
    for shape, state in (("1b", "training"), ("3b", "training"), ("8b", "weights")):
        record[f"{shape} {state}"] = bench.ours("gpu_transitions", "--shape", shape, "--state", state, "--repeats", 5)
    record["checkpoint"] = bench.peer("gpu_transitions/checkpoint.py", "--shape", "3b", timeout=300)
    ours = record["3b training"]
    if ours and record["checkpoint"]:
        split = next(row for row in ours["transitions"] if row["transition"].startswith("Extend"))
        record["times_faster_than_checkpoint"] = record["checkpoint"]["seconds"] / split["pause_s"]
    bench.write("transitions", record)


def training(bench):
    record = {"gradients, 8B, recompute": {
        "ours": bench.ours("gpu_training", "--shape", "8b", "--recompute"),
        "transformers": bench.peer("gpu_training/peers.py", "--shape", "8b", "--checkpoint")},
        "gradients, 8B, 2 sequences": {
        "ours": bench.ours("gpu_training", "--shape", "8b", "--sequences", 2, "--micro-batch", 2),
        "transformers": bench.peer("gpu_training/peers.py", "--shape", "8b", "--sequences", 2)}}
    if bench.gpus > 1:
        record["update, 8B, 2 GPUs, recompute"] = {
            "ours, tp 2": bench.ours("gpu_training", "--shape", "8b", "--recompute", "--update", "--tp", 2,
                                     "--sequences", 8, "--micro-batch", 8),
            "FSDP2": bench.peer("gpu_training/peers.py", "--shape", "8b", "--checkpoint", "--fsdp", ranks=2)}
        record["update, 3B, 2 GPUs, recompute"] = {
            "ours, dp 2": bench.ours("gpu_training", "--shape", "3b", "--recompute", "--update", "--dp", 2),
            "FSDP2": bench.peer("gpu_training/peers.py", "--shape", "3b", "--checkpoint", "--fsdp", ranks=2)}
    for row in record.values():
        row["ratio"] = ratio(*list(row.values())[:2], "tokens_per_s")
    bench.write("training", record)


def generation(bench):
    record = {}
    for sequences in (64, 256):
        ours = bench.ours("gpu_generation", "--shape", "8b", "--sequences", sequences)
        peer = bench.peer("gpu_generation/peers.py", "--shape", "8b", "--sequences", sequences, "--repeats", 1)
        record[f"8B, {sequences} sequences"] = {
            "ours": ours, "transformers": peer, "ratio": ratio(ours, peer, "tokens_per_s"),
            "decode_ratio": ratio(ours, peer, "decode_tokens_per_s")}
    bench.write("generation", record)


def grpo(bench):
    record = {}
    for responses in (64, 256):
        ours = bench.peer("gpu_grpo/ours.py", "--build", bench.build, "--responses", responses, timeout=240)
        peer = bench.peer("gpu_grpo/trl_grpo.py", "--shape", "1b", "--responses", responses, timeout=240)
        record[f"1B, {responses} responses"] = {"ours": ours, "TRL": peer,
                                                "ratio": ratio(peer, ours, "step_s")}
    bench.write("grpo", record)


def memory(bench):
    record = bench.ours("gpu_training", "--memory", timeout=240)
    if record is None:
        return
    ratios = [row["predicted_peak_gib"] / row["peak_gib"] for row in record["memory"]]
    bench.write("memory", record | {"predicted_over_measured": {
        "median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}})


def adaptive(bench):
    model = ROOT / "models/SmolLM2-135M-Instruct"
    if bench.gpus < 2 or not model.exists():
        print("  left out: needs two GPUs and " + str(model))
        return
    bench.run([sys.executable, str(BENCH / "gpu_adaptive/run.py"), "--build", str(bench.build), "--model", str(model),
               "--output", str(bench.output)], 300)


PARTS = {part.__name__: part for part in (build, tests, transitions, training, generation, grpo, memory, adaptive)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="with the benches built")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=pathlib.Path, help="default: bench/results/h200xN")
    arguments = parser.parse_args()
    import torch
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise SystemExit("run_gpu.py: torch sees no GPU")
    bench = Bench(arguments.build.resolve(), gpus, arguments.output or BENCH / "results" / f"h200x{gpus}")
    for part in arguments.only:
        print(part, flush=True)
        PARTS[part](bench)
    print(table.write(bench.output))
    for command in bench.failed:
        print(f"failed: {command}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
