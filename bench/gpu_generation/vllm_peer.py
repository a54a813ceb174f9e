"""Generation with vLLM and random weights, for comparison; prints a line of JSON for each run of a case.

  vllm_peer.py --shape 8b '{"name": "64 x (512 + 128)", "sequences": 64, "new_tokens": 128}'
"""

import argparse
import json
import pathlib
import random
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"1b": "llama-3.2-1b", "3b": "llama-3.2-3b", "8b": "llama-3.1-8b"}
VOCABULARY = 128000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=MODELS, default="8b")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--at-once", type=int, help="sequences in the batch at most")
    parser.add_argument("cases", nargs="+", type=json.loads)
    arguments = parser.parse_args()

    import vllm

    numbers = random.Random(1)
    limits = {"max_num_seqs": arguments.at_once} if arguments.at_once else {}
    model = vllm.LLM(model=str(ROOT / "examples/models" / MODELS[arguments.shape]), skip_tokenizer_init=True,
                     load_format="dummy", dtype="bfloat16", max_model_len=8192, gpu_memory_utilization=0.85,
                     disable_log_stats=True, **limits)

    def prompts(count, length=512):
        return [{"prompt_token_ids": [numbers.randrange(3, VOCABULARY) for _ in range(length)]} for _ in range(count)]

    def sampling(new_tokens, responses=1):
        return vllm.SamplingParams(temperature=1.0, n=responses, max_tokens=new_tokens, ignore_eos=True, detokenize=False)

    model.generate(prompts(16), sampling(16), use_tqdm=False)  # warms up
    for case in arguments.cases:
        responses = case.get("responses", 1)
        for _ in range(arguments.repeats):
            asked = prompts(case["sequences"] // responses)  # new ones, so that nothing is known from before
            wanted = [sampling(limit) for limit in case["limits"]] if "limits" in case else sampling(
                case["new_tokens"], responses)
            start = time.perf_counter()
            outputs = model.generate(asked, wanted, use_tqdm=False)
            seconds = time.perf_counter() - start
            tokens = sum(len(answer.token_ids) for output in outputs for answer in output.outputs)
            print(json.dumps({"name": case["name"], "seconds": seconds, "tokens": tokens, "tokens_per_s": tokens / seconds,
                              "vllm": vllm.__version__}), flush=True)


if __name__ == "__main__":
    main()
