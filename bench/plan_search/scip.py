"""Solves the plan selection of main.cpp with SCIP: the same candidates, couplings and objective, as a mixed-integer
program. All model-stages begin with the same device, so their passes run one after the other.

One binary variable for each way to run a model-stage (placement, micro-batch, recomputation). On each device the
resident bytes of all model-stages and the transient bytes of each one must fit; weights of generation that training
holds there count once. Pairs of training and generation placements (a transport problem, integral with the binaries)
carry that alias and the time of weight synchronisation. Pass times and precedences give the length of the step.

    python bench/plan_search/scip.py INSTANCE.json [--time-limit 60]

Needs `pip install pyscipopt` (6.3 was used) in any environment.
"""

import argparse
import json
import pathlib

from pyscipopt import Model, quicksum

GIB = 2 ** 30


def rank_bytes(placement, values, position):
    """Of the device at a position on the line; 0 where the placement is not."""
    rank = placement["ranks"][position]
    return values[rank] / GIB if rank >= 0 else 0


def add_choices(model, stages):
    """A binary for each way to run each stage, one of which is chosen; and which placement that is."""
    ways, placed = [], []
    for stage in stages:
        mine = [[model.addVar(vtype="B") for _ in placement["variants"]] for placement in stage["placements"]]
        ways.append(mine)
        placed.append([model.addVar(vtype="B") for _ in mine])
        model.addCons(quicksum(placed[-1]) == 1)
        for chosen, group in zip(placed[-1], mine):
            model.addCons(quicksum(group) == chosen)
    return ways, placed


def add_pairs(model, problem, placed):
    """Placements of training and of generation together."""
    training, generation = range(len(placed[0])), range(len(placed[1]))
    pairs = {(t, g): model.addVar(lb=0, ub=1) for t in training for g in generation}
    for t in training:
        model.addCons(quicksum(pairs[t, g] for g in generation) == placed[0][t])
    for g in generation:
        model.addCons(quicksum(pairs[t, g] for t in training) == placed[1][g])
    sync = quicksum(problem["sync_s"][t][g] * pair for (t, g), pair in pairs.items())
    return pairs, sync


def aliased(problem, pairs, position):
    """Bytes of generation that need not be there, because training has them."""
    terms = []
    for (t, g), pair in pairs.items():
        training = problem["stages"][0]["placements"][t]
        generation = problem["stages"][1]["placements"][g]
        rank = generation["ranks"][position]
        if training["layout"] == generation["layout"] and rank >= 0 and training["ranks"][position] == rank:
            terms.append(generation["resident"][rank] / GIB * pair)
    return quicksum(terms)


def add_memory(model, problem, ways, placed, pairs):
    stages = problem["stages"]
    devices = len(stages[0]["placements"][0]["ranks"])
    for position in range(devices):
        resident = model.addVar(lb=0)
        model.addCons(resident == quicksum(rank_bytes(placement, placement["resident"], position) * chosen
                                           for stage, mine in zip(stages, placed)
                                           for placement, chosen in zip(stage["placements"], mine))
                      - aliased(problem, pairs, position))
        for stage, mine in zip(stages, ways):
            transient = quicksum(rank_bytes(placement, variant["transient"], position) * way
                                 for placement, group in zip(stage["placements"], mine)
                                 for variant, way in zip(placement["variants"], group))
            model.addCons(resident + transient <= problem["usable_bytes"] / GIB)


def add_step(model, problem, ways, sync):
    """The end of the last node; nodes on devices follow each other in topological order."""
    times = [quicksum([]) + node["host_s"] for node in problem["nodes"]]
    for stage, mine in zip(problem["stages"], ways):
        for place, node in enumerate(stage["nodes"]):
            times[node] += quicksum(variant["passes"][place] * way
                                    for placement, group in zip(stage["placements"], mine)
                                    for variant, way in zip(placement["variants"], group))
    for number, node in enumerate(problem["nodes"]):
        if node["syncs"]:
            times[number] += sync
    ends = [model.addVar(lb=0) for _ in times]
    step = model.addVar(lb=0)
    on_devices = []
    for number in problem["order"]:
        before = set(problem["nodes"][number]["after"])
        if problem["nodes"][number]["on_devices"]:
            before |= set(on_devices[-1:])
            on_devices.append(number)
        model.addCons(ends[number] >= times[number])
        for earlier in before:
            model.addCons(ends[number] >= ends[earlier] + times[number])
        model.addCons(step >= ends[number])
    model.setObjective(step, "minimize")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instance", type=pathlib.Path)
    parser.add_argument("--time-limit", type=float, default=60, help="seconds of CPU")
    arguments = parser.parse_args()
    problem = json.loads(arguments.instance.read_text())
    model = Model()
    model.hideOutput()
    model.setParam("timing/clocktype", 1)
    model.setParam("limits/time", arguments.time_limit)
    model.setParam("limits/gap", 0)
    ways, placed = add_choices(model, problem["stages"])
    pairs, sync = add_pairs(model, problem, placed)
    add_memory(model, problem, ways, placed, pairs)
    add_step(model, problem, ways, sync)
    model.optimize()
    print(json.dumps({"status": model.getStatus(), "time_s": model.getSolvingTime(),
                      "step_s": model.getObjVal() if model.getNSols() else None,
                      "lower_bound_s": model.getDualbound()}))


if __name__ == "__main__":
    main()
