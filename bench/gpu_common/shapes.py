"""Llama shapes with random weights, as transformers models: what the GPU benches compare with."""

import torch
import transformers

SHAPES = {
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, head_dim=64, tie_word_embeddings=True),
    "3b": dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24,
               num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, tie_word_embeddings=False),
}
VOCABULARY = 128256


def config(shape):
    return transformers.LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=131072,
                                    bos_token_id=0, eos_token_id=1, pad_token_id=2, **SHAPES[shape])


def model(shape, device="cuda", dtype=torch.bfloat16):
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            config(shape), dtype=dtype, attn_implementation="sdpa")


def parameters(shape):
    with torch.device("meta"):
        return sum(p.numel() for p in model(shape, "meta").parameters())


def median_seconds(step, repeats, warm_up=2):
    """Median wall seconds of step(), the device's work included."""
    import statistics
    import time
    seconds = []
    for i in range(warm_up + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if i >= warm_up:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
