"""config.json files as people have them, and what transformers' AutoConfig reads in them.

    python tests/parity/config_cases.py     # writes src/nereus/core/model/testdata/configs.json again

The test of the room `model` compares ModelSpec with that file; test_configs.py compares the file with the installed
transformers.
"""

import json
import pathlib
import tempfile

import transformers

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "src/nereus/core/model/testdata/configs.json"
SIZES = dict(vocab_size=1000, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=4096, rms_norm_eps=1e-5, hidden_act="silu",
             bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16")
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=2048)
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
DROP = object()

# What is changed in a plain config, for every family. A text: why Nereus refuses what transformers reads.
CHANGES = {
    "plain": {},
    "rope_theta": dict(rope_theta=500000.0),
    "rope_theta_whole": dict(rope_theta=1000000),
    "rope_parameters": dict(rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    "rope_parameters_without_theta": dict(rope_parameters=dict(rope_type="default"), rope_theta=3000.0),
    "rope_parameters_and_older_theta": dict(rope_parameters=dict(rope_theta=7000.0), rope_theta=3000.0),
    "scaling_null": dict(rope_scaling=None, rope_theta=20000.0),
    "scaling_default": dict(rope_scaling=dict(type="default"), rope_theta=20000.0),
    "llama3_of_4": dict(rope_scaling=dict(rope_type="llama3", **LLAMA3), rope_theta=20000.0),
    "llama3_by_its_older_name": dict(rope_scaling=dict(type="llama3", **LLAMA3)),
    "llama3_of_5": dict(rope_parameters=dict(rope_type="llama3", rope_theta=20000.0, **LLAMA3)),
    "llama3_without_original": dict(rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                                      high_freq_factor=4.0)),
    "scaling_and_parameters": dict(rope_scaling=dict(rope_type="llama3", **LLAMA3),
                                   rope_parameters=dict(rope_type="default", rope_theta=7000.0)),
    "linear": (dict(rope_scaling=dict(type="linear", factor=2.0)), "linear"),
    "dynamic": (dict(rope_scaling=dict(rope_type="dynamic", factor=2.0)), "dynamic"),
    "yarn": (dict(rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e6)), "yarn"),
    "linear_beside_parameters": (dict(rope_scaling=dict(rope_type="linear", factor=2.0),
                                      rope_parameters=dict(rope_type="default")), "linear"),
    "partial_rotary": (dict(partial_rotary_factor=0.5), "partial_rotary_factor"),
    "partial_rotary_in_parameters": (dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5)),
                                     "partial_rotary_factor"),
    "no_kv_heads": dict(num_key_value_heads=DROP, num_attention_heads=32),
    "head_dim": dict(head_dim=24),
    "no_eps": dict(rms_norm_eps=DROP),
    "tied": dict(tie_word_embeddings=True),
    "eos_list": dict(eos_token_id=[2, 7]),
    "eos_null": dict(eos_token_id=None),
    "pad": dict(pad_token_id=0),
    "swish": dict(hidden_act="swish"),
    "gelu": (dict(hidden_act="gelu"), "gelu"),
    "dtype_of_5": dict(torch_dtype=DROP, dtype="float16"),
    "dropout": dict(attention_dropout=0.1),
    "no_architectures": dict(architectures=DROP),
    "window": dict(sliding_window=1024),  # refused for mistral
    "window_null": dict(sliding_window=None),
}
OF_FAMILIES = {
    "llama": {"kv_heads_null": dict(num_key_value_heads=None), "head_dim_null": dict(head_dim=None),
              "attention_bias": (dict(attention_bias=True), "attention_bias"),
              "mlp_bias": (dict(mlp_bias=True), "mlp_bias"),
              "rope_by_layer": (dict(rope_parameters=dict(full_attention=dict(rope_type="default"))),
                                "full_attention")},
    "mistral": {"head_dim_null": dict(head_dim=None)},
    "qwen2": {"kv_heads_null": dict(num_key_value_heads=None),
              "window_in_use": (dict(use_sliding_window=True, sliding_window=1024, max_window_layers=2),
                                "sliding_window"),
              "window_above_all_layers": dict(use_sliding_window=True, sliding_window=1024, max_window_layers=4),
              "window_default_layers": dict(use_sliding_window=True, sliding_window=1024),
              "all_layers_full": dict(use_sliding_window=True, sliding_window=1024, max_window_layers=0,
                                      layer_types=["full_attention"] * 4),
              "layer_types": (dict(use_sliding_window=True, sliding_window=1024,
                                   layer_types=["full_attention"] * 3 + ["sliding_attention"]), "sliding_attention")},
    "qwen3": {"kv_heads_null": dict(num_key_value_heads=None),
              "attention_bias": (dict(attention_bias=True), "attention_bias"),
              "window_in_use": (dict(use_sliding_window=True, sliding_window=1024, max_window_layers=0),
                                "sliding_window")},
}


def config_of(family, change):
    prefix = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family]
    config = dict(model_type=family, architectures=[prefix + "ForCausalLM"], **SIZES)
    if family == "mistral":
        config["sliding_window"] = None
    config |= change
    return {key: value for key, value in config.items() if value is not DROP}


def as_list(ids):
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def read_by_transformers(config):
    """The fields of ModelSpec."""
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "config.json").write_text(json.dumps(config))
        read = transformers.AutoConfig.from_pretrained(directory)
    rope = read.rope_parameters
    head_dim = getattr(read, "head_dim", None) or read.hidden_size // read.num_attention_heads
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return dict(
        vocab_size=read.vocab_size, hidden_size=read.hidden_size, intermediate_size=read.intermediate_size,
        num_layers=read.num_hidden_layers, num_heads=read.num_attention_heads, num_kv_heads=read.num_key_value_heads,
        head_dim=head_dim, max_position=read.max_position_embeddings, rms_norm_eps=read.rms_norm_eps,
        tie_word_embeddings=read.tie_word_embeddings, rope_theta=rope["rope_theta"],
        rope_scaling=[rope[name] for name in names] if rope["rope_type"] == "llama3" else None,
        eos_token_ids=as_list(read.eos_token_id), bos_token_id=read.bos_token_id, pad_token_id=read.pad_token_id,
    )


def cases():
    for family in FAMILIES:
        for name, change in (CHANGES | OF_FAMILIES[family]).items():
            refusal = None
            if isinstance(change, tuple):
                change, refusal = change
            if family == "mistral" and name == "window":
                refusal = "sliding_window 1024"
            config = config_of(family, change)
            case = dict(name=f"{family} {name}", config=config)
            yield case | (dict(refusal=refusal) if refusal else dict(spec=read_by_transformers(config)))


def text():
    return "[\n" + ",\n".join(json.dumps(case) for case in cases()) + "\n]\n"


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(text())
