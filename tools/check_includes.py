"""Checks that every room includes only itself and rooms before it, and keeps its promises.

Usage: check_includes.py [SOURCE_ROOT]
"""

import pathlib
import re
import sys

ORDER = """base model cluster plan workflow state cost transition planner job controller
           cuda comm data bridge nn engine rl live observe config driver cli""".split()
PURE = set(ORDER[: ORDER.index("controller") + 1])
RUNTIME = {"cuda", "comm", "data", "bridge", "nn", "engine", "rl", "live"}
TORCH = re.compile(r"(torch|ATen|c10|pybind11)/")
# Clocks, threads and I/O; base/log is the one place of a pure room that talks to the world, and base/stop_token the one
# that looks at something which another thread changes.
MAY_SEE_WORLD = {"log.cpp", "stop_token.h"}
WORLD = {"chrono", "thread", "mutex", "atomic", "condition_variable", "fstream", "iostream", "filesystem"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def problems_of(room, name, includes):
    rooms = [include.split("/")[1] for include in includes if include.startswith("nereus/")]
    for other in rooms:
        if other not in ORDER:
            yield f"includes the unknown room {other}"
        elif ORDER.index(other) > ORDER.index(room):
            yield f"{room} may not include {other}: it comes later"
        if room in RUNTIME and other in ("planner", "controller"):
            yield f"{room} runs things and may not know the {other}"
    for include in includes:
        if room in PURE and TORCH.match(include):
            yield f"{room} is pure and may not include {include}"
        if room in PURE and include in WORLD and name not in MAY_SEE_WORLD and "_test" not in name:
            yield f"{room} is pure: no clock, thread or I/O, so no <{include}>"
        if include.split("/")[0] in ("fmt", "spdlog") and (room, name) != ("base", "log.cpp"):
            yield f"{include} clashes with torch's: only base/log.cpp may include it"
    knows_both = {"nereus/controller/controller.h", "nereus/live/live_job.h"} <= set(includes)
    if knows_both and room != "driver":
        yield "only driver may know both the controller and the job"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    rooms = root / "src" / "nereus"
    files = sorted(file for suffix in ("h", "cpp") for file in rooms.rglob(f"*.{suffix}"))
    failed = False
    for file in files:
        room = file.relative_to(rooms).parts[0]
        for problem in problems_of(room, file.name, INCLUDE.findall(file.read_text())):
            print(f"{file.relative_to(root)}: {problem}")
            failed = True
    print(f"order of inclusion: {len(files)} files {'with problems' if failed else 'fine'}")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
