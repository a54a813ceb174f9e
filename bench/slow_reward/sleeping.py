"""A reward that waits, as one does that asks a server: the share of lower-case letters, after `data_source` seconds."""

import asyncio


async def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    await asyncio.sleep(float(data_source))
    return sum(letter.islower() for letter in solution_str) / max(1, len(solution_str))
