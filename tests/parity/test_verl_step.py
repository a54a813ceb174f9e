"""Whole RL steps of nereus, computed again by transformers, torch.optim and verl's own functions in float64.

Of a run of nereus only the tokens and the scores are taken over: log-probabilities, values, KL penalties, advantages,
returns, losses, gradients, learning rates and the weights in the end are computed again and must be the same. The program
comes from the environment variable NEREUS_REPLAY, or from build/release. Skipped without verl 0.9 (pip install --no-deps
verl==0.9.1, and tensordict, omegaconf, hydra-core, codetiming, ray and orjson).
"""

import json
import os
import pathlib
import shutil
import subprocess
import types

import pytest
import safetensors.torch
import torch

transformers = pytest.importorskip("transformers")
core_algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed", exc_type=ImportError)
verl_F = pytest.importorskip("verl.utils.torch_functional", reason="verl is not installed", exc_type=ImportError)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NEREUS_REPLAY", str(ROOT / "build/release/apps/parity/nereus_replay"))
STORIES = ROOT / "assets" / "stories260K"

TOLERANCE = 1e-9
# verl adds 1e-8 to the number of tokens before it divides by it: whitened advantages differ by that much, and then
# what is learnt from them.
WHITENED = 1e-8
STEPS, PROMPTS, RESPONSES, LENGTH = 3, 4, 4, 12
MINI, EPOCHS = 2, 2  # prompts per optimizer step: two a pass
TEMPERATURE, GAMMA, LAM, KL_COEF, LR, WARMUP, MIN_LR = 0.8, 0.97, 0.9, 0.05, 3e-4, 1, 0.1
CLIP = dict(clip_ratio=0.2, clip_ratio_low=0.1, clip_ratio_high=0.15, clip_ratio_c=1.5)
ENTROPY_COEFF, KL_LOSS_COEF, CLIP_VALUE, GRAD_CLIP = 0.01, 0.1, 0.05, 0.5

CONFIG = f"""
data:
  train_files: assets/prompts/stories.jsonl
  tokenizer: assets/stories260K
  max_prompt_length: 16
  max_response_length: {LENGTH}
  train_batch_size: {PROMPTS}
actor_rollout_ref:
  model: {{path: MODEL, dtype: float64}}
  actor:
    optim: {{lr: {LR}, lr_warmup_steps: {WARMUP}, lr_scheduler_type: cosine, min_lr_ratio: {MIN_LR}}}
    ppo_mini_batch_size: {MINI}
    ppo_epochs: {EPOCHS}
    entropy_coeff: {ENTROPY_COEFF}
    kl_loss_coef: {KL_LOSS_COEF}
    grad_clip: {GRAD_CLIP}
    clip_ratio_low: {CLIP["clip_ratio_low"]}
    clip_ratio_high: {CLIP["clip_ratio_high"]}
    clip_ratio_c: {CLIP["clip_ratio_c"]}
  rollout: {{n: {RESPONSES}, temperature: {TEMPERATURE}}}
critic:
  model: {{path: MODEL}}
  optim: {{lr: {LR}, lr_warmup_steps: {WARMUP}}}
  cliprange_value: {CLIP_VALUE}
  grad_clip: {GRAD_CLIP}
algorithm:
  gamma: {GAMMA}
  lam: {LAM}
  kl_ctrl: {{type: adaptive, kl_coef: {KL_COEF}, target_kl: 0.01, horizon: 100}}
reward: {{name: response_length}}
trainer: {{total_training_steps: {STEPS}}}
cluster: {{device: cpu, devices: 2, memory_per_device: 512MiB}}
plan:
  all: {{dp: 2, micro_batch: 2}}
adaptation: {{enabled: false}}
"""

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
CASES = (
    [("gae", mode, "low_var_kl" if mode == "token-mean" else "kl", None) for mode in ("token-mean", "seq-mean-token-mean")]
    + [("grpo", mode, None, "low_var_kl") for mode in MODES]
    + [("grpo", "token-mean", "mse", "mse"), ("rloo", "seq-mean-token-sum", "abs", None)]
    + [("reinforce_plus_plus", "token-mean", "kl", None), ("reinforce_plus_plus_baseline", "token-mean", "kl", None)]
)


class Rotary(torch.nn.Module):
    """transformers computes these in float32."""

    def __init__(self, config):
        super().__init__()
        dim = config.hidden_size // config.num_attention_heads
        base = json.loads((STORIES / "config.json").read_text())["rope_theta"]
        self.frequencies = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def forward(self, x, position_ids):
        angles = position_ids[..., None].double() * self.frequencies
        return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def in_float64(model):
    """The model with nothing in it that falls back to float32."""
    body = getattr(model, "model", model)
    body.rotary_emb = Rotary(model.config)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__ == "LlamaRMSNorm":
                norm = torch.nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon, dtype=torch.float64)
                norm.weight = child.weight
                setattr(parent, name, norm)
    return model


class Actor(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.lm = in_float64(load(path, dtype=torch.float64, attn_implementation="sdpa"))

    def forward(self, batch):
        logits = self.lm(**batch.inputs()).logits / TEMPERATURE
        logs = batch.of_responses(logits).log_softmax(-1)
        entropy = -(logs.exp() * logs).sum(-1)
        return logs.gather(-1, batch.responses[..., None]).squeeze(-1), entropy

    def named_weights(self):
        return dict(self.lm.named_parameters())


class Critic(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        load = transformers.AutoModel.from_pretrained
        self.body = in_float64(load(path, dtype=torch.float64, attn_implementation="sdpa"))
        self.head = torch.nn.Linear(self.body.config.hidden_size, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.head.weight)

    def forward(self, batch):
        hidden = self.body(**batch.inputs()).last_hidden_state
        return batch.of_responses(self.head(hidden)).squeeze(-1)

    def named_weights(self):
        return {"model." + name: weight for name, weight in self.body.named_parameters()} | {
            "score.weight": self.head.weight}


class Batch:
    """Samples side by side: prompts end and responses begin in one column, as in verl."""

    def __init__(self, samples):
        self.samples = samples
        self.index = [sample["group"] for sample in samples]
        widest = max(len(sample["prompt"]) for sample in samples)
        self.tokens = torch.zeros(len(samples), widest + LENGTH, dtype=torch.long)
        self.attention = torch.zeros_like(self.tokens)
        for row, sample in enumerate(samples):
            begin, all_tokens = widest - len(sample["prompt"]), sample["prompt"] + sample["response"]
            self.tokens[row, begin:begin + len(all_tokens)] = torch.tensor(all_tokens)
            self.attention[row, begin:begin + len(all_tokens)] = 1
        self.responses = self.tokens[:, widest:]
        self.mask = self.attention[:, widest:].double()

    def inputs(self):
        positions = (self.attention.cumsum(-1) - 1).clamp(min=0)
        return dict(input_ids=self.tokens, attention_mask=self.attention, position_ids=positions)

    def of_responses(self, outputs):
        """What was put out at the token before each of the response."""
        return outputs[:, -LENGTH - 1:-1]

    def padded(self, key):
        rows = torch.zeros_like(self.mask)
        for row, sample in enumerate(self.samples):
            rows[row, :len(sample[key])] = torch.tensor(sample[key], dtype=torch.float64)
        return rows

    def check(self, key, expected, tolerance):
        actual = self.padded(key)
        torch.testing.assert_close(actual, expected * self.mask, rtol=tolerance, atol=tolerance, msg=lambda m: key + ": " + m)


class Trained:
    """A model with what verl trains it with."""

    def __init__(self, model, scheduler):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), weight_decay=0.01)
        self.scheduler = scheduler(self.optimizer)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRAD_CLIP)
        self.optimizer.step()
        return norm.item()


def penalised(batch, scores, old, ref, controller, kind):
    """verl's apply_kl_penalty() of the trainer, which needs all of verl to be imported."""
    kld = core_algos.kl_penalty(old, ref, kl_penalty=kind) * batch.mask
    coefficient = controller.value
    kl = torch.mean(verl_F.masked_mean(kld, mask=batch.mask, axis=-1), dim=0).item()
    controller.update(current_kl=kl, n_steps=len(batch.samples))
    return scores - coefficient * kld, {"actor/reward_kl_penalty": kl, "actor/reward_kl_penalty_coeff": coefficient}


def advantages_of(estimator, rewards, values, batch):
    if estimator == "gae":
        return core_algos.compute_gae_advantage_return(rewards, values, batch.mask, GAMMA, LAM)
    estimate = core_algos.get_adv_estimator_fn(estimator)
    config = types.SimpleNamespace(gamma=GAMMA)
    if estimator == "reinforce_plus_plus":
        return estimate(token_level_rewards=rewards, response_mask=batch.mask, config=config)
    return estimate(token_level_rewards=rewards.clone(), response_mask=batch.mask, index=batch.index, config=config)


class ActorConfig(dict):
    """What verl's policy loss reads of its ActorConfig."""

    __getattr__ = dict.__getitem__


def mini_batches(batch, targets):
    """(batch, targets) of each optimizer step."""
    size = MINI * RESPONSES
    for _ in range(EPOCHS):
        for begin in range(0, len(batch.samples), size):
            part = slice(begin, begin + size)
            yield Batch(batch.samples[part]), {key: value[part] for key, value in targets.items()}


def mean_metrics(of_each):
    return {key: sum(metrics[key] for metrics in of_each) / len(of_each) for key in of_each[0]}


def update_actor(actor, batch, targets, mode, kl_loss):
    config = ActorConfig(CLIP, global_batch_info={})
    of_each = []
    for part, target in mini_batches(batch, targets):
        log_probs, entropy = actor.model(part)
        loss, metrics = core_algos.compute_policy_loss_vanilla(
            target["old"], log_probs, target["advantages"], part.mask, loss_agg_mode=mode, config=config)
        metrics["actor/pg_loss"] = loss.item()
        metrics["actor/entropy"] = verl_F.masked_mean(entropy, part.mask).item()
        loss = loss - ENTROPY_COEFF * core_algos.agg_loss(entropy, part.mask, mode)
        if kl_loss:
            kl = core_algos.agg_loss(core_algos.kl_penalty(log_probs, target["ref"], kl_loss), part.mask, mode)
            metrics["actor/kl_loss"] = kl.item()
            loss = loss + KL_LOSS_COEF * kl
        metrics["actor/lr"] = actor.scheduler.get_last_lr()[0]
        metrics["actor/grad_norm"] = actor.update(loss)
        of_each.append(metrics)
    actor.scheduler.step()
    return mean_metrics(of_each)


def update_critic(critic, batch, targets, mode):
    of_each = []
    for part, target in mini_batches(batch, targets):
        values = critic.model(part)
        loss, clipped = core_algos.compute_value_loss(
            values, target["returns"], target["values"], part.mask, CLIP_VALUE, loss_agg_mode=mode)
        of_each.append({
            "critic/vf_loss": loss.item(), "critic/vf_clipfrac": clipped.item(),
            "critic/vpred_mean": verl_F.masked_mean(values, part.mask).item(),
            "critic/lr": critic.scheduler.get_last_lr()[0], "critic/grad_norm": critic.update(loss)})
    critic.scheduler.step()
    return mean_metrics(of_each)


def replay_step(step, case, actor, critic, reference, controller):
    estimator, mode, kl_in_reward, kl_loss = case
    batch = Batch(step["samples"])
    tolerance = TOLERANCE if estimator in ("grpo", "rloo") else WHITENED
    with torch.no_grad():
        old = actor.model(batch)[0]
        ref = reference(batch)[0]
        values = critic.model(batch) if critic else None
    batch.check("old_log_probs", old, tolerance)
    batch.check("rollout_log_probs", old, tolerance)
    batch.check("ref_log_probs", ref, tolerance)
    rewards, expected = batch.padded("token_scores"), {}
    if kl_in_reward:
        rewards, expected = penalised(batch, rewards, old, ref, controller, kl_in_reward)
    batch.check("rewards", rewards, tolerance)
    advantages, returns = advantages_of(estimator, rewards, values, batch)
    batch.check("advantages", advantages, tolerance)
    targets = {"old": old, "ref": ref, "advantages": advantages * batch.mask}
    if critic:
        batch.check("values", values, tolerance)
        batch.check("returns", returns, tolerance)
        expected |= update_critic(critic, batch, {"values": values, "returns": returns}, mode)
    expected |= update_actor(actor, batch, targets, mode, kl_loss)
    for key, value in expected.items():
        assert step["metrics"][key] == pytest.approx(value, rel=tolerance * 10, abs=tolerance * 10), key
    return expected


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The story model, but more tokens end a response: lengths differ."""
    directory = tmp_path_factory.mktemp("replay") / "model"
    shutil.copytree(STORIES, directory)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((directory / name).read_text())
        config["eos_token_id"] = [1, 2, *range(260, 512, 9)]
        (directory / name).write_text(json.dumps(config))
    return directory


def cosine(optimizer):
    return verl_F.get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS, min_lr_ratio=MIN_LR)


def constant(optimizer):
    return verl_F.get_constant_schedule_with_warmup(optimizer, WARMUP)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(part) for part in case))
def test_steps_are_those_of_verl(tmp_path, model, case):
    estimator, mode, kl_in_reward, kl_loss = case
    (tmp_path / "job.yaml").write_text(CONFIG.replace("MODEL", str(model)))
    overrides = [f"algorithm.adv_estimator={estimator}", f"actor_rollout_ref.actor.loss_agg_mode={mode}"]
    if kl_in_reward:
        overrides += ["algorithm.use_kl_in_reward=true", f"algorithm.kl_penalty={kl_in_reward}"]
    if kl_loss:
        overrides += ["actor_rollout_ref.actor.use_kl_loss=true", f"actor_rollout_ref.actor.kl_loss_type={kl_loss}"]
    subprocess.run([PROGRAM, tmp_path / "job.yaml", tmp_path, *overrides], cwd=ROOT, check=True, timeout=300)

    reference = Actor(model)
    actor = Trained(Actor(model), cosine)
    critic = Trained(Critic(model), constant) if estimator == "gae" else None
    controller = core_algos.AdaptiveKLController(KL_COEF, target_kl=0.01, horizon=100)
    clipped = 0
    for number in range(1, STEPS + 1):
        step = json.loads((tmp_path / f"step_{number}.json").read_text())
        clipped += replay_step(step, case, actor, critic, reference, controller)["actor/pg_clipfrac"]
    assert clipped > 0, "the steps are large enough for the clip to matter"
    assert len({len(sample["response"]) for sample in step["samples"]}) > 2

    for part, trained in {"actor": actor, "critic": critic}.items():
        if trained is None:
            continue
        saved = safetensors.torch.load_file(tmp_path / f"state/step_{STEPS}/{part}.safetensors")
        for name, weight in trained.model.named_weights().items():
            torch.testing.assert_close(saved["weights/" + name], weight.detach(), rtol=0, atol=1e-7, msg=lambda m: name + ": " + m)
