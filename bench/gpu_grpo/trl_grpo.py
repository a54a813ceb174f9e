"""GRPO steps with TRL on random tokens, for comparison; prints one line of JSON. Medians of the steps after the first two.

  trl_grpo.py --shape 1b --responses 64

A Llama shape with random weights, one GPU, a reference model, prompts and responses of exactly 512
tokens, 8 responses to a prompt, one optimizer step on each batch, gradient checkpointing, SDPA.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import datasets
import tokenizers
import torch
import transformers
import trl

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu_common"))
import shapes  # noqa: E402


def tokenizer():
    """One token per word "t17": prompts of a known number of tokens."""
    vocabulary = {"<unk>": 0, "<eos>": 1, "<pad>": 2} | {f"t{i}": i for i in range(3, shapes.VOCABULARY)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>",
                                                eos_token="<eos>", pad_token="<pad>")


def prompts(count, length):
    tokens = torch.randint(3, shapes.VOCABULARY, (count, length)).tolist()
    return datasets.Dataset.from_list([{"prompt": " ".join(f"t{i}" for i in row)} for row in tokens])


class Stopwatch(transformers.TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, arguments, state, control, **others):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


def supported(**settings):
    """Those settings that this version of TRL knows."""
    known = {field for field in trl.GRPOConfig.__dataclass_fields__}
    return {key: value for key, value in settings.items() if key in known}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="1b")
    parser.add_argument("--responses", type=int, default=64, help="a step")
    parser.add_argument("--group", type=int, default=8, help="responses to one prompt")
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--new-tokens", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences in one backward pass")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    directory = tempfile.mkdtemp()  # TRL loads the reference from where the model came from
    shapes.model(arguments.shape, device).save_pretrained(directory)
    settings = supported(
        output_dir=tempfile.mkdtemp(), max_steps=arguments.steps, beta=0.001, learning_rate=1e-6,
        num_generations=arguments.group, per_device_train_batch_size=arguments.micro_batch,
        gradient_accumulation_steps=arguments.responses // arguments.micro_batch,
        max_completion_length=arguments.new_tokens, max_prompt_length=arguments.prompt,
        generation_kwargs={"min_new_tokens": arguments.new_tokens}, temperature=1.0, bf16=device == "cuda",
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
        gradient_checkpointing=True, report_to=[], logging_steps=1000, save_strategy="no",
        disable_tqdm=True, use_vllm=False)
    watch = Stopwatch()
    trainer = trl.GRPOTrainer(
        model=directory, args=trl.GRPOConfig(**settings), processing_class=tokenizer(), callbacks=[watch],
        train_dataset=prompts(arguments.responses * arguments.steps, arguments.prompt),
        reward_funcs=lambda completions, **others: torch.rand(len(completions)).tolist())
    trainer.train()
    seconds = [b - a for a, b in zip(watch.ends[1:], watch.ends[2:])]
    step = statistics.median(seconds)
    print(json.dumps({"shape": arguments.shape, "responses": arguments.responses, "step_s": step,
                      "steps_s": seconds, "trl": trl.__version__,
                      "response_tokens_per_s": arguments.responses * arguments.new_tokens / step}))


if __name__ == "__main__":
    main()
