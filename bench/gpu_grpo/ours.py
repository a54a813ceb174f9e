"""GRPO steps with nereus on random tokens; prints one line of JSON. Medians of the steps after the first two.

  ours.py --build build/release --responses 64
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUP, PROMPT, NEW_TOKENS, VOCABULARY = 8, 512, 512, 128256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--responses", type=int, default=64, help="a step")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("overrides", nargs="*", help="of grpo.yaml")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        prompts = pathlib.Path(directory) / "prompts.jsonl"
        randomness = random.Random(1)
        prompts.write_text("".join(
            json.dumps({"prompt_ids": [randomness.randrange(3, VOCABULARY) for _ in range(PROMPT)]}) + "\n"
            for _ in range(arguments.responses)))
        batch = arguments.responses // GROUP
        subprocess.run(
            [arguments.build / "apps/nereus/nereus", "train", ROOT / "bench/gpu_grpo/grpo.yaml",
             "--run-dir", f"{directory}/run", f"data.train_files={prompts}", f"data.train_batch_size={batch}",
             f"actor_rollout_ref.actor.ppo_mini_batch_size={batch}", f"cluster.devices={arguments.devices}",
             *arguments.overrides], check=True, cwd=ROOT, stdout=sys.stderr)
        rows = [json.loads(line) for line in open(f"{directory}/run/metrics.jsonl")][2:]  # without warm-up
    times = {key: statistics.median(row[key] for row in rows) for key in rows[0] if key.startswith("timing_s/")}
    step = times["timing_s/step"]
    print(json.dumps({"responses": arguments.responses, "devices": arguments.devices, "step_s": step, "steps_s": [row["timing_s/step"] for row in rows],
                      "response_tokens_per_s": arguments.responses * NEW_TOKENS / step, **times}))


if __name__ == "__main__":
    main()
