"""Solves the plan selection of main.cpp with SCIP: the same candidates, couplings and objective, as a mixed-integer
program. All model-stages begin with the same device, so their passes run one after the other.

One binary variable for each way to run a model-stage (placement, micro-batch, recomputation). On each device the
resident bytes of all model-stages and the transient bytes of each one must fit; weights of generation that training
holds there count once. Pairs of training and generation placements (a transport problem, integral with the binaries)
carry that alias and the time of weight synchronisation. Pass times and precedences give the length of the step.

To help SCIP, what cannot be in a best plan is left out first: ways that do not fit beside the least of the others, ways
that are too slow even beside the fastest of the others (a plan found by local search is the measure), and ways of
critic and reference that another one beats in time and bytes. Devices with equal rows share one.

    python bench/plan_search/scip.py INSTANCE.json [--time-limit 60]

Needs `pip install pyscipopt numpy` (6.3 was used) in any environment.
"""

import argparse
import json
import pathlib
import time

import numpy as np
from pyscipopt import Model, quicksum

GIB = 2 ** 30


class Way:
    """One way to run a model-stage, with GiB by position on the line of devices."""

    def __init__(self, placement, number, variant):
        self.placement = number
        self.passes = np.array(variant["passes"])
        self.time = self.passes.sum()
        self.layout = placement["layout"]
        self.ranks = np.array(placement["ranks"])
        self.resident = self.by_position(placement["resident"])
        self.transient = self.by_position(variant["transient"])

    def by_position(self, values):
        return np.where(self.ranks >= 0, np.array(values)[self.ranks] / GIB, 0)


def aliased(training, generation):
    """GiB of generation that need not be there, because training has them."""
    same = (generation.ranks >= 0) & (training.ranks == generation.ranks)
    return np.where(same, generation.resident, 0) if training.layout == generation.layout else 0 * generation.resident


def fits(plan, usable):
    resident = sum(way.resident for way in plan) - aliased(plan[0], plan[1])
    return all((resident + way.transient).max() <= usable for way in plan)


def duration(plan, sync):
    """Of what runs on devices, which is one after the other."""
    return sum(way.time for way in plan) + sync[plan[0].placement][plan[1].placement]


def found_by_local_search(stages, sync, usable):
    """A good plan, or nothing: from plans that spread state most, by changing one or two stages at a time."""
    start = [min(ways, key=lambda way: (way.resident + way.transient).max()) for ways in stages]
    if not fits(start, usable):
        return None
    plan, improved = start, True
    while improved:
        improved = False
        for a in range(len(stages)):
            for way in stages[a]:
                other = plan[:a] + [way] + plan[a + 1:]
                if duration(other, sync) < duration(plan, sync) - 1e-9 and fits(other, usable):
                    plan, improved = other, True
        for training in stages[0]:
            for generation in stages[1]:
                other = [training, generation] + plan[2:]
                if duration(other, sync) < duration(plan, sync) - 1e-9 and fits(other, usable):
                    plan, improved = other, True
    return plan


def without_hopeless(stages, sync, usable):
    least = [np.min([way.resident for way in ways], axis=0) for ways in stages]
    least[1] = 0 * least[1]  # may be aliased
    beside = [sum(least) - mine for mine in least]
    stages = [[way for way in ways
               if (others + (way.resident if number != 1 else 0) + way.transient).max() <= usable]
              for number, (ways, others) in enumerate(zip(stages, beside))]
    plan = found_by_local_search(stages, sync, usable)
    if plan:
        limit = duration(plan, sync) * (1 + 1e-9)
        fastest = [min(way.time for way in ways) for ways in stages]
        stages = [[way for way in ways if way.time - mine + sum(fastest) <= limit]
                  for ways, mine in zip(stages, fastest)]
    return stages[:2] + [without_beaten(ways) for ways in stages[2:]]


def without_beaten(ways):
    kept = []
    for way in sorted(ways, key=lambda way: (way.time, way.resident.sum() + way.transient.sum())):
        if not any((other.passes <= way.passes).all() and (other.resident <= way.resident).all()
                   and (other.transient <= way.transient).all() for other in kept):
            kept.append(way)
    return kept


def add_choices(model, stages):
    chosen = [[model.addVar(vtype="B") for _ in ways] for ways in stages]
    for mine in chosen:
        model.addCons(quicksum(mine) == 1)
    return chosen


def add_pairs(model, stages, chosen, sync):
    """Placements of training and of generation together, each with one of its ways."""
    placed = []
    for ways, variables in zip(stages[:2], chosen):
        by_placement = {}
        for way, variable in zip(ways, variables):
            by_placement.setdefault(way.placement, (way, []))[1].append(variable)
        placed.append(list(by_placement.values()))
    pairs = {(t, g): model.addVar(lb=0, ub=1) for t in range(len(placed[0])) for g in range(len(placed[1]))}
    for t, (_, variables) in enumerate(placed[0]):
        model.addCons(quicksum(pairs[t, g] for g in range(len(placed[1]))) == quicksum(variables))
    for g, (_, variables) in enumerate(placed[1]):
        model.addCons(quicksum(pairs[t, g] for t in range(len(placed[0]))) == quicksum(variables))
    pairs = [(placed[0][t][0], placed[1][g][0], pair) for (t, g), pair in pairs.items()]
    return pairs, quicksum(sync[t.placement][g.placement] * pair for t, g, pair in pairs)


def add_memory(model, stages, chosen, pairs, usable):
    saved = [(aliased(t, g), pair) for t, g, pair in pairs if t.layout == g.layout]
    columns = np.array([values for ways in stages for way in ways for values in (way.resident, way.transient)]
                       + [values for values, _ in saved])
    _, positions = np.unique(columns, axis=1, return_index=True)
    for position in positions:
        resident = model.addVar(lb=0)
        model.addCons(resident == quicksum(way.resident[position] * variable
                                           for ways, mine in zip(stages, chosen) for way, variable in zip(ways, mine))
                      - quicksum(values[position] * pair for values, pair in saved if values[position] > 0))
        for ways, mine in zip(stages, chosen):
            model.addCons(resident + quicksum(way.transient[position] * variable
                                              for way, variable in zip(ways, mine)) <= usable)


def add_step(model, problem, stages, chosen, sync):
    """The end of the last node; nodes on devices follow each other in topological order."""
    times = [quicksum([]) + node["host_s"] for node in problem["nodes"]]
    for stage, ways, mine in zip(problem["stages"], stages, chosen):
        for place, node in enumerate(stage["nodes"]):
            times[node] += quicksum(way.passes[place] * variable for way, variable in zip(ways, mine))
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
    usable = problem["usable_bytes"] / GIB
    start = time.process_time()
    all_ways = [[Way(placement, number, variant) for number, placement in enumerate(stage["placements"])
                 for variant in placement["variants"]] for stage in problem["stages"]]
    stages = without_hopeless(all_ways, problem["sync_s"], usable)
    filter_s = time.process_time() - start
    model = Model()
    model.hideOutput()
    model.setParam("timing/clocktype", 1)
    model.setParam("limits/time", arguments.time_limit)
    model.setParam("limits/gap", 0)
    chosen = add_choices(model, stages)
    pairs, sync = add_pairs(model, stages, chosen, problem["sync_s"])
    add_memory(model, stages, chosen, pairs, usable)
    add_step(model, problem, stages, chosen, sync)
    model.optimize()
    print(json.dumps({"status": model.getStatus(), "time_s": model.getSolvingTime(), "filter_s": filter_s,
                      "ways": [len(ways) for ways in all_ways], "ways_left": [len(ways) for ways in stages],
                      "step_s": model.getObjVal() if model.getNSols() else None,
                      "lower_bound_s": model.getDualbound()}))


if __name__ == "__main__":
    main()
