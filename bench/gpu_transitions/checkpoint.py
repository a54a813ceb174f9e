"""Moving the training state of a Llama shape from one rank to two by a checkpoint: PyTorch DCP saves it, two new processes
start, and each loads its tensor-parallel half. Prints one line of JSON.

  checkpoint.py --shape 3b --directory /tmp/checkpoint
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import torch
import torch.distributed.checkpoint as dcp

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu_common"))
import shapes  # noqa: E402

KINDS = {"weights": torch.bfloat16, "master": torch.float32, "exp_avg": torch.float32, "exp_avg_sq": torch.float32}


def state(shape, make):
    with torch.device("meta"):
        sizes = {name: tensor.shape for name, tensor in shapes.model(shape, "meta").named_parameters()}
    return {f"{kind}/{name}": make(size, dtype) for kind, dtype in KINDS.items() for name, size in sizes.items()}


def load(arguments):
    """In a new process under torchrun."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, empty
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    mesh = init_device_mesh("cuda", (2,))
    halves = state(arguments.shape, lambda size, dtype: empty(size, dtype=dtype, device_mesh=mesh,
                                                              placements=[Shard(0)]))
    torch.distributed.barrier()
    torch.cuda.synchronize()
    ready = time.time()
    dcp.load(halves, checkpoint_id=arguments.directory)
    torch.cuda.synchronize()
    torch.distributed.barrier()
    if rank == 0:
        print(json.dumps({"ready": ready, "load_s": time.time() - ready}))
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="3b")
    parser.add_argument("--directory", default="/tmp/checkpoint")
    parser.add_argument("--load", action="store_true", help="only the second half, under torchrun")
    arguments = parser.parse_args()
    if arguments.load:
        return load(arguments)
    tensors = state(arguments.shape, lambda size, dtype: torch.randn(size, dtype=dtype, device="cuda"))
    size = sum(tensor.nbytes for tensor in tensors.values())
    torch.cuda.synchronize()
    start = time.time()
    dcp.save(tensors, checkpoint_id=arguments.directory, no_dist=True)
    saved = time.time()
    del tensors
    torch.cuda.empty_cache()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, "--load",
               "--shape", arguments.shape, "--directory", arguments.directory]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
    shutil.rmtree(arguments.directory)
    print(json.dumps({"shape": arguments.shape, "bytes": size, "save_s": saved - start,
                      "restart_s": loaded["ready"] - saved, "load_s": loaded["load_s"],
                      "seconds": loaded["ready"] - start + loaded["load_s"]}))


if __name__ == "__main__":
    main()
