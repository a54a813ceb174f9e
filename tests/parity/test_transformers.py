"""The same tiny random models in transformers and in nereus, under every layout.

The program comes from the environment variable NEREUS_PARITY, or from build/release. With
NEREUS_PARITY_DEVICE=cuda ranks take the GPUs of the machine in turns.
"""

import json
import os
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NEREUS_PARITY", str(ROOT / "build/release/apps/parity/nereus_parity"))
DEVICE = os.environ.get("NEREUS_PARITY_DEVICE", "cpu")
TOLERANCE = 1e-4  # of the largest absolute value
NEW_TOKENS = 12

SIZES = dict(
    vocab_size=99,  # divisible by no tp but 1
    hidden_size=32,
    intermediate_size=52,
    num_hidden_layers=3,  # not divisible by pp 2
    num_attention_heads=4,
    num_key_value_heads=2,  # fewer than tp 4
    max_position_embeddings=128,
    initializer_range=0.3,
    bos_token_id=1,
    eos_token_id=[2, 3],
    pad_token_id=0,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=5000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)


def configurations():
    yield "llama3", transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE)
    yield "llama_tied", transformers.LlamaConfig(**SIZES, tie_word_embeddings=True)
    yield "llama_wide_heads", transformers.LlamaConfig(**(SIZES | dict(num_key_value_heads=4)), head_dim=12)
    yield "mistral", transformers.MistralConfig(**SIZES, sliding_window=None)
    yield "qwen2", transformers.Qwen2Config(**SIZES)
    yield "qwen2_tied", transformers.Qwen2Config(**SIZES, tie_word_embeddings=True)
    yield "qwen3", transformers.Qwen3Config(**SIZES, head_dim=16)


CONFIGURATIONS = dict(configurations())
LAYOUTS = [(tp, pp, dp) for tp in (1, 2, 4) for pp in (1, 2) for dp in (1, 2)]


def samples():
    generator = torch.Generator().manual_seed(5)

    def tokens(count):
        return torch.randint(4, SIZES["vocab_size"], (count,), generator=generator).tolist()

    lengths = [(5, 9), (1, 3), (17, 6), (8, 8), (3, 14)]
    return [dict(prompt=tokens(p), response=tokens(r)) for p, r in lengths]


def randomize(model):
    """Norms start at 1 and biases at 0: make every parameter matter."""
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def greedy(model, prompt):
    tokens = list(prompt)
    for _ in range(NEW_TOKENS):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        if tokens[-1] in SIZES["eos_token_id"]:
            break
    return tokens[len(prompt) :]


def reference(model):
    """What nereus_parity writes, computed by transformers."""
    batch = samples()
    count = sum(len(sample["response"]) for sample in batch)
    tensors, loss = {}, 0.0
    for i, sample in enumerate(batch):
        tokens = torch.tensor([sample["prompt"] + sample["response"]])
        logits = model(tokens).logits[0]
        predicting = logits[len(sample["prompt"]) - 1 : -1].log_softmax(-1)
        log_probs = predicting.gather(1, torch.tensor(sample["response"])[:, None])[:, 0]
        loss = loss - log_probs.sum() / count
        tensors[f"logits.{i}"] = logits.detach()
        tensors[f"log_probs.{i}"] = log_probs.detach()
    loss.backward()
    for name, parameter in model.named_parameters():
        tensors[f"grad.{name}"] = parameter.grad
    with torch.no_grad():
        return tensors, [greedy(model, sample["prompt"]) for sample in batch]


def label(layout):
    return "tp{}-pp{}-dp{}".format(*layout)


def write_request(directory, layout):
    tp, pp, dp = layout
    request = dict(
        tp=tp,
        pp=pp,
        dp=dp,
        dtype="float32",
        recompute=dp == 2,  # so that both ways of backward are met
        max_new_tokens=NEW_TOKENS,
        samples=samples(),
    )
    file = directory / f"{label(layout)}.json"
    file.write_text(json.dumps(request))
    return file


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def model(request, tmp_path_factory):
    """The folder of nereus's results, and what transformers computes: tensors, greedy tokens."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # faster than several for models so small
    model = transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[request.param]).float()
    randomize(model)
    directory = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(directory)
    requests = [write_request(directory, layout) for layout in LAYOUTS]
    command = [PROGRAM, directory, *requests, "--device", DEVICE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return directory, *reference(model)


@pytest.mark.parametrize("layout", LAYOUTS, ids=label)
def test_agrees_with_transformers(model, layout):
    directory, expected, expected_greedy = model
    results = directory / label(layout)
    tensors = safetensors.torch.load_file(results / "tensors.safetensors")
    assert tensors.keys() == expected.keys()
    errors = {}
    for name, tensor in expected.items():
        scale = tensor.abs().max()
        assert scale > 0, name
        errors[name] = float((tensors[name] - tensor).abs().max() / scale)
    # Each by itself: a NaN is not larger than anything.
    assert not {name: error for name, error in errors.items() if not error < TOLERANCE}
    assert json.loads((results / "greedy.json").read_text()) == expected_greedy
