"""Builds, tests and measures Nereus on the GPUs of this machine beside what people use today, and writes
bench/results/h200xN/*.json and a readable table.md.

  bench/run_gpu.py --build build/release                       everything that N = 1 or 2 GPUs allow
  bench/run_gpu.py --build build/release --only generation     one part
  bench/run_gpu.py --only grpo --seconds 540                   whole rounds, as many as fit

Nereus and its peers (transformers, PyTorch FSDP2 and DCP, TRL: pip install trl) take turns, A B A B: whoever runs has all
GPUs and cores of the machine to itself, which is checked before each run and kept in the record. Figures are medians over
the runs. The part `adaptive` needs SmolLM2 in models/ (tools/convert_gguf.py). A part that fails is reported and the
others go on.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from gpu_common import alone, table

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
TESTS = ("cuda", "comm", "nn", "generation", "engine", "live")  # rooms that behave differently on GPUs


class Bench:
    def __init__(self, build, gpus, output, rounds=3, seconds=None):
        self.build, self.gpus, self.output, self.rounds = build, gpus, output, rounds
        self.end = time.monotonic() + seconds if seconds else None
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

    def pair(self, ours, name, peer, key):
        """{"ours": …, name: …, "ratio"} of two functions that take turns; the ratio is of what they say of `key`."""
        def row(so_far):
            return so_far | {"ratio": ratio(so_far["ours"], so_far[name], key)}
        return row(alone.take_turns({"ours": ours, name: peer}, self.rounds, go_on=self.has_time_for))

    def has_time_for(self, seconds):
        return self.end is None or time.monotonic() + seconds < self.end

    def write(self, name, record):
        self.output.mkdir(parents=True, exist_ok=True)
        head = {"date": time.strftime("%Y-%m-%dT%H:%M:%S"), "command": " ".join(sys.argv), "machine": alone.machine(),
                "alone": "whoever ran had all GPUs and cores to itself; `before` each run says what else was busy"}
        (self.output / f"{name}.json").write_text(json.dumps(head | record, indent=1) + "\n")


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
        before = alone.wait_until_alone()
        record[f"{shape} {state}"] = bench.ours("gpu_transitions", "--shape", shape, "--state", state, "--repeats", 5)
        if record[f"{shape} {state}"]:
            record[f"{shape} {state}"]["before"] = before
    alone.wait_until_alone()
    record["checkpoint"] = bench.peer("gpu_transitions/checkpoint.py", "--shape", "3b", timeout=300)
    ours = record["3b training"]
    if ours and record["checkpoint"]:
        split = next(row for row in ours["transitions"] if row["transition"].startswith("Extend"))
        record["times_faster_than_checkpoint"] = record["checkpoint"]["seconds"] / split["pause_s"]
    bench.write("transitions", record)


def training(bench):
    def row(ours, peer, arguments, ranks=1):
        return bench.pair(lambda: bench.ours("gpu_training", *ours), peer,
                          lambda: bench.peer("gpu_training/peers.py", *arguments, ranks=ranks), "tokens_per_s")
    record = {
        "gradients, 8B, recompute": row(["--shape", "8b", "--recompute"], "transformers", ["--shape", "8b", "--checkpoint"]),
        "gradients, 8B, 2 sequences": row(["--shape", "8b", "--sequences", 2, "--micro-batch", 2], "transformers",
                                          ["--shape", "8b", "--sequences", 2])}
    if bench.gpus > 1:
        record["update, 8B, recompute, 2 GPUs"] = row(
            ["--shape", "8b", "--recompute", "--update", "--tp", 2, "--sequences", 8, "--micro-batch", 8], "FSDP2",
            ["--shape", "8b", "--checkpoint", "--fsdp"], ranks=2)
        record["update, 3B, recompute, 2 GPUs"] = row(
            ["--shape", "3b", "--recompute", "--update", "--dp", 2], "FSDP2",
            ["--shape", "3b", "--checkpoint", "--fsdp"], ranks=2)
    bench.write("training", record)


def generation(bench):
    record = {}
    for sequences in (64, 256):
        shape = ["--shape", "8b", "--sequences", sequences]
        row = bench.pair(lambda: bench.ours("gpu_generation", *shape), "transformers",
                         lambda: bench.peer("gpu_generation/peers.py", *shape, "--repeats", 1), "tokens_per_s")
        row["decode_ratio"] = ratio(row["ours"], row["transformers"], "decode_tokens_per_s")
        record[f"8B, {sequences} sequences"] = row
        bench.write("generation", record)


def grpo(bench):
    """Round by round, so that what there is after some minutes is whole."""
    contestants = {}
    for responses in (64, 256):
        count = ["--responses", responses]
        contestants[f"1B, {responses} responses", "ours"] = functools.partial(
            bench.peer, "gpu_grpo/ours.py", "--build", bench.build, *count)
        contestants[f"1B, {responses} responses", "TRL"] = functools.partial(
            bench.peer, "gpu_grpo/trl_grpo.py", "--shape", "1b", *count)

    def write(so_far):
        record = {"order": [" ".join(name) for name in contestants], "rounds": bench.rounds}
        for (row, who), measured in so_far.items():
            record.setdefault(row, {})[who] = measured
        for row in {row for row, _ in contestants}:
            record[row]["ratio"] = ratio(record[row]["TRL"], record[row]["ours"], "step_s")
        bench.write("grpo", record)

    alone.take_turns(contestants, bench.rounds, report=write, go_on=bench.has_time_for)


def memory(bench):
    alone.wait_until_alone()
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
    alone.wait_until_alone()
    bench.run([sys.executable, str(BENCH / "gpu_adaptive/run.py"), "--build", str(bench.build), "--model", str(model),
               "--output", str(bench.output)], 300)


PARTS = {part.__name__: part for part in (build, tests, transitions, training, generation, grpo, memory, adaptive)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="with the benches built")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=pathlib.Path, help="default: bench/results/h200xN")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side of a comparison")
    parser.add_argument("--seconds", type=float, help="begin no further round that would end later than this")
    arguments = parser.parse_args()
    import torch
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise SystemExit("run_gpu.py: torch sees no GPU")
    bench = Bench(arguments.build.resolve(), gpus, arguments.output or BENCH / "results" / f"h200x{gpus}",
                  arguments.rounds, arguments.seconds)
    for part in arguments.only:
        print(part, flush=True)
        try:
            PARTS[part](bench)
        except alone.Busy as busy:
            print(f"  FAILED {busy}", flush=True)
            bench.failed.append(part)
    print(table.write(bench.output))
    for command in bench.failed:
        print(f"failed: {command}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
