"""The peer of the benchmark: PPO as one would write it over transformers, on one process.

Same models, prompts, lengths, batch, losses and optimizer settings as the Nereus config it is given;
torch uses as many threads as the machine has cores. Prints one JSON object.
"""

import argparse
import json
import math
import pathlib
import time

import torch
import yaml
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification


def limit_at(schedule, step):
    if isinstance(schedule, int):
        return schedule
    return [limit for first, limit in schedule if first <= step][-1]


def read_lexicon(path):
    rows = (line.split("\t") for line in pathlib.Path(path).read_text().splitlines() if "\t" in line)
    return {row[0].lower(): float(row[1]) for row in rows}


def sentiment(text, lexicon, sign):
    total = sum(lexicon.get(word.strip(".,!?\"'();:").lower(), 0.0) for word in text.split())
    return sign * total / math.sqrt(total * total + 15)


def token_log_probs(model, sequences, start, temperature=1.0):
    logits = model(sequences).logits[:, start - 1 : -1] / temperature
    log_probs = torch.log_softmax(logits, -1)
    chosen = log_probs.gather(-1, sequences[:, start:, None])[..., 0]
    return chosen, log_probs


def gae(rewards, values, gamma, lam):
    advantages = torch.zeros_like(rewards)
    last = torch.zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        after = values[:, t + 1] if t + 1 < rewards.shape[1] else torch.zeros(rewards.shape[0])
        last = rewards[:, t] + gamma * after - values[:, t] + gamma * lam * last
        advantages[:, t] = last
    return advantages, advantages + values


class Trainer:
    def __init__(self, config):
        self.config = config
        path = config["actor_rollout_ref"]["model"]["path"]
        self.actor = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.critic = AutoModelForTokenClassification.from_pretrained(
            path, num_labels=1, dtype=torch.float32)
        torch.nn.init.zeros_(self.critic.score.weight)
        torch.nn.init.zeros_(self.critic.score.bias)
        self.tokenizer = Tokenizer.from_file(str(pathlib.Path(path) / "tokenizer.json"))
        self.lexicon = read_lexicon(config["reward"]["lexicon"])
        rows = pathlib.Path(config["data"]["train_files"]).read_text().splitlines()
        self.prompts = [self.tokenizer.encode(json.loads(row)["prompt"]).ids for row in rows]
        actor_lr = config["actor_rollout_ref"]["actor"]["optim"]["lr"]
        self.actor_optimizer = torch.optim.AdamW(self.actor.parameters(), lr=float(actor_lr))
        self.critic_optimizer = torch.optim.AdamW(
            self.critic.parameters(), lr=float(config["critic"]["optim"]["lr"]))

    def generate(self, limit):
        """All prompts of the batch at once, left-padded, as generate() wants them."""
        n = self.config["actor_rollout_ref"]["rollout"]["n"]
        batch = self.config["data"]["train_batch_size"]
        prompts = [self.prompts[i % len(self.prompts)] for i in range(batch) for _ in range(n)]
        width = max(map(len, prompts))
        tokens = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        with torch.no_grad():
            sequences = self.actor.generate(
                tokens, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=limit,
                min_new_tokens=limit, pad_token_id=0)
        return sequences, width

    def step(self, step):
        config = self.config
        limit = limit_at(config["data"]["max_response_length"], step)
        sequences, start = self.generate(limit)
        texts = self.tokenizer.decode_batch(sequences[:, start:].tolist())
        sign = config["reward"].get("sign", 1)
        scores = torch.tensor([sentiment(text, self.lexicon, sign) for text in texts])
        with torch.no_grad():
            old, _ = token_log_probs(self.actor, sequences, start)
            ref, _ = token_log_probs(self.reference, sequences, start)
            values = self.critic(sequences).logits[:, start - 1 : -1, 0]
        algorithm = config["algorithm"]
        rewards = -float(algorithm["kl_ctrl"]["kl_coef"]) * (old - ref)
        rewards[:, -1] += scores
        advantages, returns = gae(rewards, values, float(algorithm["gamma"]), float(algorithm["lam"]))
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        self.update(sequences, start, old, advantages, values, returns)
        return scores.mean().item(), (old - ref).mean().item(), sequences[:, start:].numel()

    def update(self, sequences, start, old, advantages, values, returns):
        actor = self.config["actor_rollout_ref"]["actor"]
        n = self.config["actor_rollout_ref"]["rollout"]["n"]
        clip = actor.get("clip_ratio", 0.2)
        for rows in torch.arange(len(sequences)).split(actor["ppo_mini_batch_size"] * n):
            predicted = self.critic(sequences[rows]).logits[:, start - 1 : -1, 0]
            clipped = values[rows] + (predicted - values[rows]).clamp(-0.5, 0.5)
            value_loss = 0.5 * torch.max(
                (predicted - returns[rows]) ** 2, (clipped - returns[rows]) ** 2).mean()
            self.critic_optimizer.zero_grad()
            value_loss.backward()
            torch.nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
            self.critic_optimizer.step()

            log_probs, _ = token_log_probs(self.actor, sequences[rows], start)
            ratio = (log_probs - old[rows]).clamp(-20, 20).exp()
            a = advantages[rows]
            loss = torch.max(-a * ratio, -a * ratio.clamp(1 - clip, 1 + clip))
            loss = torch.where(a < 0, torch.min(loss, -a * 3.0), loss).mean()
            self.actor_optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.actor.parameters(), 1.0)
            self.actor_optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="the Nereus YAML config of the workload")
    parser.add_argument("--steps", type=int, default=0, help="default: the config's")
    arguments = parser.parse_args()
    config = yaml.safe_load(pathlib.Path(arguments.config).read_text())
    steps = arguments.steps or config["trainer"]["total_training_steps"]
    torch.manual_seed(config["trainer"].get("seed", 0))
    trainer = Trainer(config)
    tokens, rewards, kls = 0, [], []
    begun = time.perf_counter()
    for step in range(steps):
        reward, kl, count = trainer.step(step)
        rewards.append(reward)
        kls.append(kl)
        tokens += count
    wall = time.perf_counter() - begun
    print(json.dumps({
        "steps": steps, "wall_s": wall, "response_tokens": tokens, "throughput_tok_s": tokens / wall,
        "reward_first": sum(rewards[:10]) / len(rewards[:10]),
        "reward_last": sum(rewards[-10:]) / len(rewards[-10:]), "kl_last": kls[-1],
        "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
