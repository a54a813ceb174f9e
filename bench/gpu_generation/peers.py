"""Generation with transformers.generate, for comparison; prints one line of JSON.

  peers.py --shape 8b --sequences 64
"""

import argparse
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu_common"))
import shapes  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="8b")
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    model = shapes.model(arguments.shape).eval()
    tokens = torch.randint(3, shapes.VOCABULARY, (arguments.sequences, arguments.prompt), device="cuda")

    def seconds(new_tokens):
        def generate():
            model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), do_sample=True,
                           top_k=0, max_new_tokens=new_tokens, min_new_tokens=new_tokens)
        return shapes.median_seconds(generate, arguments.repeats, warm_up=1)

    first = seconds(1)
    everything = seconds(arguments.new_tokens)
    step = (everything - first) / (arguments.new_tokens - 1)
    print(json.dumps({"shape": arguments.shape, "sequences": arguments.sequences,
                      "seconds": everything, "prefill_s": first, "decode_step_s": step,
                      "tokens_per_s": arguments.sequences * arguments.new_tokens / everything,
                      "decode_tokens_per_s": arguments.sequences / step}))


if __name__ == "__main__":
    main()
