"""Whether a machine does nothing else, and measurements that take turns on it."""

import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

GPU_MEMORY = 1024  # MiB that a driver may hold of a GPU that nobody uses
GPU_BUSY = 5  # percent of the time
HOST_BUSY = 1.5  # cores


class Busy(RuntimeError):
    """Somebody else uses what is to be measured."""


def gpus_now():
    """MiB taken and percent busy of every GPU that this process may use."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits",
                           *(["-i", shown] if shown else [])], capture_output=True, text=True, check=True).stdout
    # Some machines do not tell how busy a GPU is ("[N/A]").
    return [[int(word) if word.strip().isdigit() else 0 for word in line.split(",")] for line in said.splitlines()]


def cores_now(seconds=1.0):
    """How many cores of the host are busy; None where the system does not tell."""
    def read():
        numbers = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]
    total, idle = read()
    time.sleep(seconds)
    total, idle = (after - before for after, before in zip(read(), (total, idle)))
    return None if total == 0 else os.cpu_count() * (1 - idle / total)


def wait_until_alone(patience=60, gpus=gpus_now, cores=cores_now):
    """{"gpu_mib", "gpu_percent", "busy_cores"} once nothing else runs; a process that ends needs a moment to be gone.
    Raises Busy, which says what is in the way, when it has waited for `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        taken, busy = gpus(), cores()
        quiet = all(mib <= GPU_MEMORY and percent <= GPU_BUSY for mib, percent in taken)
        if quiet and (busy is None or busy <= HOST_BUSY):
            return {"gpu_mib": [mib for mib, _ in taken], "gpu_percent": [percent for _, percent in taken],
                    "busy_cores": None if busy is None else round(busy, 2)}
        if time.monotonic() > end:
            raise Busy(f"not alone on this machine: MiB and percent of the GPUs {taken}, {busy} cores busy")


def medians(runs):
    """Of several runs' records: the medians of their numbers, everything else from the first; the runs themselves."""
    together = {key: statistics.median(run[key] for run in runs) if isinstance(value, float) else value
                for key, value in runs[0].items()}
    return together | {"runs": runs}


def take_turns(contestants, rounds, alone=wait_until_alone, report=lambda so_far: None, go_on=lambda seconds: True):
    """Runs {name: function} one after the other, A B A B …, each with the machine to itself.

    A function returns a record (a dict) or None if it failed. Returns {name: medians of its records, or None}; before
    each run, alone() says that nothing else runs, and the record keeps what it said. report() gets what there is
    after every round; go_on() says whether there is time for one more, as long as the longest before.
    """
    runs = {name: [] for name in contestants}
    longest = 0
    for _ in range(rounds):
        if longest and not go_on(longest):
            break
        start = time.monotonic()
        for name, measure in contestants.items():
            before = alone()
            record = measure()
            if record is not None:
                runs[name].append(record | {"before": before})
        longest = max(longest, time.monotonic() - start)
        so_far = {name: medians(records) if records else None for name, records in runs.items()}
        report(so_far)
    return so_far


DESCRIBE = """
import json, os, platform, torch, transformers
print(json.dumps({"gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
                  "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__,
                  "cuda": torch.version.cuda, "transformers": transformers.__version__}))
"""


@functools.cache
def machine():
    """What is measured on and with; asked in a process of its own, for who asks a GPU for its name takes memory of it."""
    return json.loads(subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, text=True, check=True).stdout)
