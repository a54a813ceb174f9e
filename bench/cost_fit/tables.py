"""Public measurements as one document of rows for nereus_cost_fit.

    python bench/cost_fit/tables.py --data DIR > rows.json

DIR holds `perf/` and `rl_logs/` of the project's data folder: tables of vidur, nccl-tests,
Megatron-Bridge, torchtitan, NeMo-RL and verl logs. Every other row of a group teaches.
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import sys

GB = 1e9


def cluster(kind, flops, memory_bandwidth, in_host, between, devices=8):
    """Peak rates of one device; `between` is what it reaches through its own NIC."""
    link = lambda bandwidth, latency: {"bandwidth": bandwidth, "latency": latency}
    return {
        "hosts": [{"devices": devices, "full_speed_devices": devices, "memory": 0,
                   "nic_bandwidth": devices * between}],
        "device": {"kind": kind, "memory": 80 * 10**9, "flops": flops,
                   "memory_bandwidth": memory_bandwidth},
        "local": link(memory_bandwidth / 2, 5e-6), "in_host": link(in_host, 5e-6),
        "between_hosts": link(between, 10e-6), "to_host": link(50 * GB, 1e-5),
    }


CLUSTERS = {
    "a100": cluster("a100", 312e12, 2.039e12, 300 * GB, 25 * GB),
    "h100": cluster("h100", 989e12, 3.35e12, 450 * GB, 50 * GB),
    "h200": cluster("h200", 989e12, 4.8e12, 450 * GB, 50 * GB),
    "b200": cluster("b200", 2250e12, 8e12, 900 * GB, 50 * GB),
    "gb200": cluster("gb200", 2500e12, 8e12, 900 * GB, 50 * GB, devices=64),
    "b300": cluster("b300", 2250e12, 8e12, 900 * GB, 100 * GB),
    "gb300": cluster("gb300", 2500e12, 8e12, 900 * GB, 100 * GB, devices=64),
    # Two devices of a pair share NVLink bridges.
    "a100-pair": cluster("a100", 312e12, 2.039e12, 300 * GB, 25 * GB),
    "h100-pair": cluster("h100", 989e12, 3.35e12, 300 * GB, 25 * GB),
}


def dense(hidden, ffn, layers, heads, kv_heads, vocabulary):
    return {"model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
            "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072, "hidden_act": "silu",
            "tie_word_embeddings": False}


def experts(hidden, layers, heads, width):
    return dense(hidden, 4 * hidden, layers, heads, 4, 151936) | {
        "model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": width, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "norm_topk_prob": True}


MODELS = {
    "llama3-8b": dense(4096, 14336, 32, 32, 8, 128256),
    "llama3-70b": dense(8192, 28672, 80, 64, 8, 128256),
    "llama3-405b": dense(16384, 53248, 126, 128, 8, 128256),
    "qwen2-7b": dense(3584, 18944, 28, 28, 4, 152064) | {"model_type": "qwen2"},
    "qwen3-30b-a3b": experts(2048, 48, 32, 768),
    "qwen3-235b-a22b": experts(4096, 94, 64, 1536),
}


# Where a table has few rows, what profiles of single operations taught comes first: tables and groups.
PRIORS = {
    "nemo_rl": [["vidur h100.Llama-2-70b-hf", "all"],
                ["vidur h100_dgx all_reduce", "8 ranks; 8 a host"]],
}


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Tables:
    """Collects rows. Within a group, those with an even `turn` teach."""

    def __init__(self):
        self.rows, self.ticks, self.turns = [], {}, {}

    def add(self, table, group, name, seconds, work, turn=None, tick=0.0):
        if turn is None:
            turn = self.turns.get((table, group), 0)
            self.turns[table, group] = turn + 1
        self.ticks[table] = tick
        self.rows.append({"table": table, "group": group, "name": str(name).replace(",", ";"),
                          "seconds": seconds, "teaches": turn % 2 == 0, **work})

    def document(self):
        order = {}
        for row in self.rows:
            order.setdefault((row["table"], row["group"]), []).append(row)
        tables = list(dict.fromkeys(table for table, _ in order))
        rows = [row for table in tables for (of, _), group in order.items() if of == table
                for row in group]
        return {"clusters": CLUSTERS, "models": MODELS, "priors": PRIORS, "ticks": self.ticks, "rows": rows}


def vidur_operations(tables, data):
    """Times of the operators of one block by tokens and TP, clock of 1 µs."""
    for path in sorted((data / "perf/vidur/compute").glob("*.mlp.csv")):
        table = path.name.removesuffix(".mlp.csv")
        device = table.split(".")[0]
        for turn, row in enumerate(read(path)):
            value = {key: int(row[key]) for key in (
                "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "num_tokens",
                "num_tensor_parallel_workers")}
            tokens, tp, hidden = value["num_tokens"], value["num_tensor_parallel_workers"], \
                value["n_embd"]
            query = hidden // tp
            key = max(value["n_kv_head"] // tp, 1) * hidden // value["n_head"]
            ffn = value["n_expanded_embd"] // tp
            gemms = {"attn_pre_proj": (hidden, query + 2 * key), "attn_post_proj": (query, hidden),
                     "mlp_up_proj": (hidden, 2 * ffn), "mlp_down_proj": (ffn, hidden)}
            # Elements read and written: norms read twice, SiLU and product are two kernels.
            norms = {"input_layernorm": 3 * hidden, "post_attention_layernorm": 3 * hidden}
            rotary = {"attn_rope": 2 * (query + key)}
            others = {"mlp_act": 5 * ffn, "add": 3 * hidden}
            works = {name: {"kind": "gemm", "tokens": tokens, "in": a, "out": b}
                     for name, (a, b) in gemms.items()}
            works |= {name: {"kind": kind, "bytes": 2 * tokens * width}
                      for kind, group in (("norm", norms), ("rotary", rotary), ("elementwise", others))
                      for name, width in group.items()}
            for name, work in works.items():
                seconds = float(row[f"time_stats.{name}.median"]) * 1e-3
                if seconds > 0:
                    tables.add(f"vidur {table}", "all", f"{name} tokens {tokens} tp {tp}", seconds,
                               work | {"cluster": device, "block": f"tokens {tokens} tp {tp}"},
                               turn, tick=1e-6)


def vidur_network(tables, data):
    for path in sorted((data / "perf/vidur/network").glob("*.csv")):
        platform, operation = path.name.removesuffix(".csv").split(".")
        device = platform.split("_")[0] + ("-pair" if "pairwise" in platform else "")
        done = {}
        for row in read(path):
            ranks, per_host = int(row["num_workers"]), int(row["devices_per_node"])
            key = (ranks, per_host, int(row["size"]))
            seconds = float(row[f"time_stats.{operation}.median"]) * 1e-3
            done.setdefault(key, []).append(seconds)
        for (ranks, per_host, size), seconds in sorted(done.items()):
            tables.add(f"vidur {platform} {operation}", f"{ranks} ranks; {per_host} a host", size,
                       statistics.median(seconds),
                       {"kind": "send" if operation == "send_recv" else operation,
                        "cluster": device, "bytes": size, "ranks": ranks,
                        "per_host": per_host}, tick=1e-6)


def nccl(tables, data):
    hosts = {"H200": "h200", "A100": "a100", "B200": "b200", "H100": "h100"}
    for row in read(data / "perf/nccl/nccl_allreduce_busbw.csv"):
        system = row["system"]
        device = next((kind for word, kind in hosts.items() if word in system), "h100")
        size, nodes = int(row["payload_bytes"]), int(row["nodes"])
        ranks = int(row["gpus"])
        if row["time_us"]:
            seconds = float(row["time_us"]) * 1e-6
        else:  # busbw = 2 (n - 1) / n · size / time
            seconds = 2 * (ranks - 1) / ranks * size / (float(row["busbw_GBps"]) * GB)
        tables.add("nccl all_reduce", system.replace(",", ";") + f" {nodes} nodes", size, seconds,
                   {"kind": "all_reduce", "cluster": device, "bytes": size,
                    "ranks": ranks, "per_host": ranks // nodes})


def training(model, row, **more):
    return {"kind": "step", "passes": ["train"], "model": model} | row | more


def megatron_bridge(tables, data):
    names = {"LLAMA3_8B": "llama3-8b", "LLAMA3_70B": "llama3-70b",
             "LLAMA3.1_405B": "llama3-405b"}
    excluded = 0
    for row in read(data / "perf/megatron_bridge_train.csv"):
        model = names.get(row["model"])
        # "2 (4)": where a row holds two runs, the first.
        whole = {key: int(row[key].split()[0]) if row[key][:1].isdigit() else 1
                 for key in ("gpus", "gbs", "mbs", "seq_len", "tp", "pp", "cp", "vp")}
        device = row["system"].lower().removeprefix("dgx-")
        precision = row["precision"].split("-")[0] or "FP8"
        # Other architectures, LoRA, context parallelism and four-bit arithmetic are not modelled.
        if model is None or "Pre-Training" not in row["section"] or whole["cp"] > 1 or \
                device not in CLUSTERS or precision not in ("BF16", "FP8", "MXFP8"):
            excluded += 1
            continue
        tokens = whole["gbs"] * whole["seq_len"]
        seconds = tokens / (float(row["tokens_per_s_per_gpu"].split()[0]) * whole["gpus"])
        tables.add("megatron_bridge", f"{device} {'BF16' if precision == 'BF16' else 'FP8'}",
                   f"{row['model']} {whole['gpus']} gpus tp{whole['tp']} pp{whole['pp']} "
                   f"{row['release'].split()[0]}", seconds,
                   training(model, {"cluster": device, "gpus": whole["gpus"], "tp": whole["tp"],
                                    "pp": whole["pp"], "batch": whole["gbs"],
                                    "micro_batch": whole["mbs"], "length": whole["seq_len"],
                                    "chunks": max(1, whole["vp"]) if whole["pp"] > 1 else 1,
                                    "float8": int(precision != "BF16")}))
    print(f"megatron_bridge: {excluded} rows are not modelled", file=sys.stderr)


def torchtitan(tables, data):
    """Compiled runs on H100 and H200 without context parallelism; the text says how."""
    for row in read(data / "perf/torchtitan_train.csv"):
        text = row["table"] + " " + row["values"]
        values = dict(part.split("=", 1) for part in row["values"].split(";"))
        size = re.search(r"(8|70|405)b", row["table"], re.IGNORECASE)
        if "Sequence Length" in text or "compile" not in text or not size:
            continue
        gpus = int(re.search(r"(\d+) (?:GPUs|H100s)", row["table"]).group(1))
        tp = int(found.group(1)) if (found := re.search(r"TP[= ]?(\d+)", row["table"])) else 1
        pp = int(found.group(1)) if (found := re.search(r"PP ?(\d+)", row["table"])) else 1
        local = int(re.search(r"local batch size (\d+)", row["table"], re.IGNORECASE).group(1))
        float8 = int("loat8" in row["values"] or "+ Float8" in row["table"])
        rate = next(float(values[key].replace(",", ""))
                    for key in ("TPS/GPU", "Vanilla TP tokens/sec") if key in values)
        replicas = gpus // tp // pp
        batch = local * replicas
        length = 8192
        # Rowwise scaling has kernels of its own, slower than bf16's.
        arithmetic = "FP8 rowwise" if "rowwise" in row["values"] else "FP8" if float8 else "BF16"
        tables.add("torchtitan", "H100 " + arithmetic,
                   f"{size.group(1)}B {gpus} gpus {row['values']}", batch * length / rate / gpus,
                   training(f"llama3-{size.group(1)}b",
                            {"cluster": "h100", "gpus": gpus, "tp": tp, "pp": pp, "batch": batch,
                             "micro_batch": 1 if pp > 1 else local, "length": length,
                             "recompute": int("Full" in text or "full AC" in text),
                             "chunks": 2 if "Interleaved" in text else 1, "float8": float8}))


def nemo_rl(tables, data):
    """On-policy GRPO steps of Qwen3: generation, old log-probabilities and update in turn."""
    names = {"Qwen3-235B": "qwen3-235b-a22b", "Qwen3-30B3A": "qwen3-30b-a3b"}
    for row in read(data / "perf/nemo_rl_steps.csv"):
        if row["model"] not in names or row["policy"] != "On policy":
            continue
        whole = lambda key: int(row[key].replace(",", ""))
        generation = json.loads(row["gen_tp_pp"])
        tp, _, _, pp, _ = (int(part) if part.strip().isdigit() else 1
                           for part in row["train_tp_cp_ep_pp_vpp"].strip("[]").split(","))
        prompt = 150  # not in the table
        device = row["system"].split()[0].lower()
        tables.add("nemo_rl", "all", f"{row['model']} {whole('gpus')} {device}",
                   float(row["step_time_s"]),
                   {"kind": "step", "passes": ["generate", "log_probs", "train"],
                    "model": names[row["model"]], "cluster": device, "gpus": whole("gpus"),
                    "tp": tp, "pp": pp, "generation_tp": generation[0],
                    "batch": whole("gen_gbs"), "mini_batch": whole("train_gbs"),
                    "prompt": prompt, "response": float(whole("gen_avg_seq") - prompt),
                    "limit": whole("train_max_seq")})


def verl_logs(tables, data):
    """Qwen2-7B GPG, 8 GPUs of unnamed kind (the reported MFU means 312 TFLOP/s)."""
    for name, layout in (("qwen2-7b_math", {}), ("qwen2-7b_math_megatron", {"tp": 2, "pp": 2})):
        for node, column, passes in (("gen", "timing_s/gen", ["generate"]),
                                     ("old_log_prob", "timing_s/old_log_prob", ["log_probs"]),
                                     ("update_actor", "timing_s/update_actor", ["train"])):
            for row in read(data / f"rl_logs/verldata_gpg/{name}.csv"):
                response, prompt = (float(row[f"{part}_length/mean"])
                                    for part in ("response", "prompt"))
                samples = round(float(row["perf/total_num_tokens"]) / (response + prompt))
                tables.add(f"{name} {node}", "all", row["step"], float(row[column]),
                           {"kind": "step", "passes": passes, "model": "qwen2-7b",
                            "cluster": "a100", "gpus": 8, "generation_tp": 2, "batch": samples,
                            "micro_batch": 8, "mini_batch": 256 * 5, "prompt": round(prompt),
                            "response": response, "limit": 1024, **layout})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    tables = Tables()
    for source in (vidur_operations, vidur_network, nccl, megatron_bridge, torchtitan, nemo_rl,
                   verl_logs):
        source(tables, arguments.data)
    json.dump(tables.document(), sys.stdout)


if __name__ == "__main__":
    main()
