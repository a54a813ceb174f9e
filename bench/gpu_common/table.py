"""The results in a folder as one readable table: table.md beside them."""

import json


def seconds(value):
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def of_pairs(record):
    """Rows {ours…: {...}, peer: {...}, ratio}: both times and how many times as fast; none where a side failed."""
    for name, row in record.items():
        if not isinstance(row, dict) or row.get("ratio") is None:
            continue
        (_, ours), (peer_name, peer) = [pair for pair in row.items() if isinstance(pair[1], dict)][:2]
        key = "step_s" if "step_s" in ours else "seconds"
        ratio = f"{row['ratio']:.2f}×" + (f", decode {row['decode_ratio']:.2f}×" if "decode_ratio" in row else "")
        yield name, seconds(ours[key]), f"{peer_name} {seconds(peer[key])}", ratio


def of_transitions(record):
    for state, measured in record.items():
        if not isinstance(measured, dict) or "transitions" not in measured:
            continue
        for row in measured["transitions"]:
            if row["transition"].endswith("again"):
                continue
            what = f"{state}: {row['transition']}" + (", allocator empty" if row["cold_allocator"] else "")
            limit = f"{100 * row['share_of_limit']:.0f} % of the link" if row["moved_gb"] else "moves nothing"
            yield what, seconds(row["pause_s"]), f"{row['moved_gb']:.1f} GB moved", limit
        for row in measured.get("hidden", []):
            yield (f"{state}: Extend hidden beside {row['work']}", seconds(row["movement_s"]), "",
                   f"work slower by {100 * row['slowdown']:.1f} %")
        for row in measured.get("hidden_by_generation", []):
            if row["moved_gb"] and not row["transition"].endswith("again"):
                yield (f"{state}: {row['transition']} hidden by generation", seconds(row["movement_s"]),
                       f"stage alone {seconds(row['stage_alone_s'])}",
                       f"stage slower by {100 * row['slowdown']:.1f} %, {100 * row['share_hidden']:.0f} % hidden")


def of_checkpoint(record):
    if record.get("times_faster_than_checkpoint"):
        peer = record["checkpoint"]
        yield ("3b training: Extend 1->2 instead of a checkpoint", "", f"DCP save, restart, load {seconds(peer['seconds'])}",
               f"{record['times_faster_than_checkpoint']:.0f}×")


def of_memory(record):
    points = record.get("predicted_over_measured")
    if points:
        yield (f"predicted over measured peak, {len(record['memory'])} points", f"{points['median']:.3f}", "1",
               f"{points['least']:.3f} … {points['most']:.3f}")


def of_adaptive(record):
    if "adaptive" not in record:
        return
    for i, third in enumerate(("first", "second", "last")):
        yield (f"PPO of SmolLM2, {third} third of the steps: reward",
               *(f"{record[run]['reward_by_third'][i]:.3f}" + ("" if run == "adaptive" else " static")
                 for run in ("adaptive", "static")), "")


def write(folder):
    """Collects what is there; returns the table."""
    lines = ["| | Nereus | compared with | |", "|---|---|---|---|"]
    for name in ("transitions", "training", "generation", "grpo", "memory", "adaptive"):
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        record = json.loads(file.read_text())
        for rows in (of_transitions, of_checkpoint, of_pairs, of_memory, of_adaptive):
            lines += [f"| {' | '.join(row)} |" for row in rows(record)]
    text = "\n".join(lines) + "\n"
    (folder / "table.md").write_text(text)
    return text
