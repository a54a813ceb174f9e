"""Training passes with transformers, for comparison; prints one line of JSON.

  peers.py --shape 8b --checkpoint                  forward and backward on one GPU
  torchrun --nproc-per-node 2 peers.py --shape 8b --checkpoint --fsdp    full step, PyTorch FSDP2
"""

import argparse
import json
import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu_common"))
import shapes  # noqa: E402


def report(arguments, seconds, gpus):
    tokens = arguments.sequences * arguments.length * gpus
    flops = 6 * shapes.parameters(arguments.shape) * tokens
    return {"shape": arguments.shape, "fsdp": arguments.fsdp, "checkpoint": arguments.checkpoint,
            "seconds": seconds, "tokens_per_s": tokens / seconds,
            "model_tflops_per_gpu": flops / seconds / 1e12 / gpus,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30}


def prepare(model, arguments):
    model.config.use_cache = False
    model.train()
    if arguments.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return torch.randint(shapes.VOCABULARY, (arguments.sequences, arguments.length), device="cuda")


def gradients(arguments):
    model = shapes.model(arguments.shape)
    tokens = prepare(model, arguments)

    def step():
        model(input_ids=tokens, labels=tokens).loss.backward()
        model.zero_grad(set_to_none=True)

    return report(arguments, shapes.median_seconds(step, arguments.repeats), 1)


def fsdp(arguments):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = shapes.model(arguments.shape, "meta", torch.float32)
    tokens = None
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if name.endswith("norm.weight") else 0.0, 0.02)
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq.copy_(500000.0 ** (-torch.arange(0, len(module.inv_freq), device="cuda")
                                               / len(module.inv_freq)))
    tokens = prepare(model, arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step():
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = shapes.median_seconds(step, arguments.repeats)
    result = report(arguments, seconds, torch.distributed.get_world_size())
    torch.distributed.destroy_process_group()
    return result if rank == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="8b")
    parser.add_argument("--sequences", type=int, default=4, help="per GPU")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a sequence")
    parser.add_argument("--checkpoint", action="store_true", help="recompute activations")
    parser.add_argument("--fsdp", action="store_true", help="full step under torchrun")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    result = fsdp(arguments) if arguments.fsdp else gradients(arguments)
    if result is not None:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
