#!/usr/bin/env python3
"""Converts a llama2.c model to a Hugging Face directory.

    tools/convert_stories.py stories260K.bin tok512.bin assets/stories260K

The checkpoint is llama2.c's first format (7 int32, then fp32 weights), the tokenizer its tokenizer.bin.
"""

import argparse
import json
import pathlib
import struct

import numpy as np
from safetensors.numpy import save_file

HEADER = struct.Struct("<7i")  # dim, hidden_dim, layers, heads, kv_heads, vocab, max_seq_len
UNK, BOS, EOS = 0, 1, 2
BYTE_TOKENS = range(3, 259)
SPACE = "\u2581"  # sentencepiece's mark for a space


def to_rotate_half(weight, heads):
    """Rows of a q or k projection from llama2.c's interleaved rotary pairs to transformers' halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def read_checkpoint(path):
    """(config.json as a dict, tensors by Hugging Face name)."""
    blob = path.read_bytes()
    dim, ffn, layers, heads, kv_heads, vocab, max_position = HEADER.unpack_from(blob)
    if vocab <= 0:
        raise SystemExit(f"{path}: an untied classifier (vocabulary {vocab}) is not supported")
    weights = np.frombuffer(blob, dtype="<f4", offset=HEADER.size)
    kv_dim = dim // heads * kv_heads
    position = 0

    def take(*shape):
        nonlocal position
        size = int(np.prod(shape))
        position += size
        return weights[position - size : position].reshape(shape)

    tensors = {"model.embed_tokens.weight": take(vocab, dim)}
    per_layer = [
        ("input_layernorm", (dim,)),
        ("self_attn.q_proj", (dim, dim)),
        ("self_attn.k_proj", (kv_dim, dim)),
        ("self_attn.v_proj", (kv_dim, dim)),
        ("self_attn.o_proj", (dim, dim)),
        ("post_attention_layernorm", (dim,)),
        ("mlp.gate_proj", (ffn, dim)),
        ("mlp.down_proj", (dim, ffn)),
        ("mlp.up_proj", (ffn, dim)),
    ]
    rotary_heads = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}
    for name, shape in per_layer:
        for layer, weight in enumerate(take(layers, *shape)):
            if name in rotary_heads:
                weight = to_rotate_half(weight, rotary_heads[name])
            tensors[f"model.layers.{layer}.{name}.weight"] = weight
    tensors["model.norm.weight"] = take(dim)
    rotary_tables = max_position * (dim // heads)  # cosines and sines, recomputed by everyone
    if position + rotary_tables != weights.size:
        raise SystemExit(f"{path}: {weights.size} weights, expected {position + rotary_tables}")

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": dim,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": max_position,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": [BOS, EOS],  # llama2.c stops at either: stories are separated by BOS
        "torch_dtype": "float32",
    }
    return config, tensors


def read_pieces(path):
    """[(piece, score)] of a tokenizer.bin, in sentencepiece's spelling."""
    blob = path.read_bytes()
    pieces, position = [], 4  # skips the longest piece's length
    while position < len(blob):
        score, length = struct.unpack_from("<fi", blob, position)
        position += 8
        text = blob[position : position + length].decode("utf-8")
        position += length
        pieces.append((text.replace(" ", SPACE), score))
    for token, name in ((UNK, "<unk>"), (BOS, "<s>"), (EOS, "</s>")):
        pieces[token] = (name, 0.0)  # llama2.c pads these with newlines for printing
    return pieces


def merges_of(pieces):
    """Every pair of pieces that makes a piece, best score first, as transformers' converter does."""
    ids = {piece: token for token, (piece, _) in enumerate(pieces)}
    merges = []
    for token, (piece, score) in enumerate(pieces):
        if token <= BYTE_TOKENS[-1]:
            continue
        pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        known.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(score, pair) for pair in known]
    merges.sort(key=lambda merge: merge[0], reverse=True)
    return [list(pair) for _, pair in merges]


def tokenizer_json(pieces):
    special = [
        {"id": token, "content": pieces[token][0], "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for token in (UNK, BOS, EOS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece: token for token, (piece, _) in enumerate(pieces)},
            "merges": merges_of(pieces),
        },
    }


def tokenizer_config(max_length):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path, help="llama2.c .bin")
    parser.add_argument("tokenizer", type=pathlib.Path, help="llama2.c tokenizer .bin")
    parser.add_argument("output", type=pathlib.Path, help="directory to write")
    arguments = parser.parse_args()

    config, tensors = read_checkpoint(arguments.checkpoint)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file(tensors, arguments.output / "model.safetensors", metadata={"format": "pt"})
    for name, content in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer.json", tokenizer_json(read_pieces(arguments.tokenizer))),
        ("tokenizer_config.json", tokenizer_config(config["max_position_embeddings"])),
    ):
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (arguments.output / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
