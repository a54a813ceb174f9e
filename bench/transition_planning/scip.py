"""Solves the scheduling problem of a transition with SCIP: tasks, resources and memory of Nereus' scheduler.

A task occupies its devices alone and some lanes of its hosts' NICs from start to end: cumulative constraints,
which SCIP propagates natively. Tasks that need others start after them. Where everything that may grow on a
device does not fit at once, binary variables order the tasks of that device, and what was there, plus the
growth of all earlier tasks, plus the rise of the task itself, must not exceed its capacity. Times are whole
microseconds, rounded down.

SCIP has it easier than Nereus in two ways: every task may move layer by layer (the smaller rise), and memory
need only suffice in the one schedule found, not in every execution that the edges allow.

    python bench/transition_planning/scip.py INSTANCE.json [--time-limit 60]

Needs `pip install pyscipopt` (6.3 was used) in any environment.
"""

import argparse
import json
import pathlib
import time

from pyscipopt import Eventhdlr, Model, SCIP_EVENTTYPE, quicksum

MICROSECOND = 1e-6


class BestSolutions(Eventhdlr):
    """Remembers when each better solution was found."""

    def __init__(self):
        super().__init__()
        self.found = []

    def eventinit(self):
        self.model.catchEvent(SCIP_EVENTTYPE.BESTSOLFOUND, self)

    def eventexec(self, event):
        self.found.append((self.model.getSolvingTime(), self.model.getPrimalbound() * MICROSECOND))


def ancestors(tasks):
    """For each task the set of tasks that must have ended before it."""
    sets = []
    for task in tasks:
        mine = set(task["needs"])
        for need in task["needs"]:
            mine |= sets[need]
        sets.append(mine)
    return sets


def users_by_device(tasks):
    users = {}
    for number, task in enumerate(tasks):
        for use in task["uses"]:
            users.setdefault(use["device"], {})[number] = use
    return users


def lower_bound(problem, durations):
    """Of the makespan, microseconds: longest chain, busiest device, busiest NIC."""
    tasks = problem["tasks"]
    ends = []
    for task, duration in zip(tasks, durations):
        ends.append(duration + max((ends[need] for need in task["needs"]), default=0))
    devices, nics = {}, {}
    for task, duration in zip(tasks, durations):
        for use in task["uses"]:
            devices[use["device"]] = devices.get(use["device"], 0) + duration
        for nic in task["nics"]:
            nics[nic["host"]] = nics.get(nic["host"], 0) + duration * nic["lanes"]
    busiest_nic = max((load / problem["lanes"][host] for host, load in nics.items()), default=0)
    return max([0, *ends, *devices.values(), busiest_nic])


class Formulation:
    def __init__(self, problem):
        self.problem = problem
        self.tasks = problem["tasks"]
        self.durations = [int(task["duration_s"] / MICROSECOND) for task in self.tasks]
        self.model = Model()
        self.model.hideOutput()
        self.ancestors = ancestors(self.tasks)
        self.order = {}
        horizon = sum(self.durations)
        self.starts = [self.model.addVar(f"s{i}", vtype="I", lb=0, ub=horizon) for i in range(len(self.tasks))]
        makespan = self.model.addVar("makespan", vtype="I", lb=lower_bound(problem, self.durations), ub=horizon)
        self.model.setObjective(makespan, "minimize")
        for i, task in enumerate(self.tasks):
            self.model.addCons(self.starts[i] + self.durations[i] <= makespan)
            for need in task["needs"]:
                self.model.addCons(self.starts[need] + self.durations[need] <= self.starts[i])
        users = users_by_device(self.tasks)
        self.add_devices(users)
        self.add_nics()
        self.add_memory(users)

    def add_cumulative(self, demand, capacity):
        tasks = [i for i in demand if self.durations[i] > 0]
        if len(tasks) > 1:
            self.model.addConsCumulative([self.starts[i] for i in tasks], [self.durations[i] for i in tasks],
                                         [demand[i] for i in tasks], capacity)

    def add_devices(self, users):
        for tasks in sorted({tuple(sorted(uses)) for uses in users.values()}):
            self.add_cumulative(dict.fromkeys(tasks, 1), 1)

    def add_nics(self):
        for host, lanes in enumerate(self.problem["lanes"]):
            demand = {i: nic["lanes"] for i, task in enumerate(self.tasks) for nic in task["nics"]
                      if nic["host"] == host}
            if sum(demand.values()) > lanes:
                self.add_cumulative(demand, lanes)

    def before(self, i, j):
        """1 if task i ends before j starts; they share a device."""
        if i in self.ancestors[j]:
            return 1
        if j in self.ancestors[i]:
            return 0
        if i > j:
            return 1 - self.before(j, i)
        if (i, j) not in self.order:
            first = self.model.addVar(f"b{i}_{j}", vtype="B")
            second = self.model.addVar(f"b{j}_{i}", vtype="B")
            self.model.addCons(first + second == 1)
            self.model.addConsIndicator(self.starts[i] + self.durations[i] - self.starts[j] <= 0, binvar=first)
            self.model.addConsIndicator(self.starts[j] + self.durations[j] - self.starts[i] <= 0, binvar=second)
            self.order[i, j] = first
        return self.order[i, j]

    def add_memory(self, users):
        seen = set()
        for device, uses in users.items():
            used, capacity = self.problem["used"][device], self.problem["capacity"][device]
            key = (used, capacity, tuple((i, use["chunked_rise"], use["net"]) for i, use in sorted(uses.items())))
            if key in seen or used + sum(max(0, use["chunked_rise"], use["net"]) for use in uses.values()) <= capacity:
                continue
            seen.add(key)
            for j, use in uses.items():
                if use["chunked_rise"] <= 0:
                    continue
                grown = quicksum(other["net"] / capacity * self.before(i, j) for i, other in uses.items() if i != j)
                self.model.addCons(grown <= (capacity - used - use["chunked_rise"]) / capacity)


def solve(problem, time_limit):
    """{"makespan_s" (None: no solution), "lower_bound_s", "status", "time_s", "best_after_s", …}"""
    began = time.monotonic()
    formulation = Formulation(problem)
    model = formulation.model
    built = time.monotonic() - began
    events = BestSolutions()
    model.includeEventhdlr(events, "best", "remembers better solutions")
    model.setParam("timing/clocktype", 1)  # CPU time, whatever else runs here
    model.setParam("limits/time", time_limit)
    model.optimize()
    solved = model.getNSols() > 0
    return {"makespan_s": model.getObjVal() * MICROSECOND if solved else None,
            "lower_bound_s": max(model.getDualbound(), lower_bound(problem, formulation.durations)) * MICROSECOND,
            "status": model.getStatus(), "time_limit_s": time_limit, "time_s": model.getSolvingTime(),
            "building_s": built, "first_after_s": events.found[0][0] if events.found else None,
            "best_after_s": events.found[-1][0] if events.found else None,
            "tasks": len(formulation.tasks), "variables": model.getNVars(False),
            "constraints": model.getNConss(False)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instance", type=pathlib.Path)
    parser.add_argument("--time-limit", type=float, default=60, help="CPU seconds")
    arguments = parser.parse_args()
    print(json.dumps(solve(json.loads(arguments.instance.read_text()), arguments.time_limit)))


if __name__ == "__main__":
    main()
