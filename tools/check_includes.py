"""Checks that every room includes exactly the rooms that src/nereus/rooms.txt allows it, and keeps its promises.

Usage: check_includes.py [SOURCE_ROOT]
"""

import dataclasses
import pathlib
import re
import sys

LINE = re.compile(r"([a-z]+)/([a-z_]+)( torch)?:(.*)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"(torch|ATen|c10|pybind11)/")
# Clocks, threads and I/O; base/log is the one place of a pure room that talks to the world, base/stop_token the one
# that looks at something which another thread changes, and job/job names the files that a job is to write.
MAY_SEE_WORLD = {"log.cpp", "stop_token.h", "job.h"}
WORLD = {"chrono", "thread", "mutex", "atomic", "condition_variable", "fstream", "iostream", "filesystem"}
DECIDES = {"planner", "controller"}


@dataclasses.dataclass
class Room:
    wing: str
    torch: bool
    allowed: set
    included: set = dataclasses.field(default_factory=set)


def read_table(path):
    """Rooms by name. Raises ValueError for a line that is none, and for a room that is allowed a later one."""
    rooms = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number}: not \"wing/room [torch]: rooms\": {line}")
        wing, name, torch, allowed = match.groups()
        later = set(allowed.split()) - set(rooms)
        if later:
            raise ValueError(f"line {number}: {name} may only include rooms of lines before, not {', '.join(sorted(later))}")
        rooms[name] = Room(wing, bool(torch), set(allowed.split()))
    return rooms


def problems_of(room, name, file, includes, rooms):
    for include in includes:
        parts = include.split("/")
        if parts[0] == "nereus":
            other = parts[2] if len(parts) > 3 else None
            if other not in rooms or rooms[other].wing != parts[1]:
                yield f"{include} is in no room"
            elif other != name:
                room.included.add(other)
                if other not in room.allowed:
                    yield f"{name} may not include {other}: rooms.txt does not allow it"
        if room.wing == "core" and include in WORLD and file not in MAY_SEE_WORLD and "_test" not in file:
            yield f"{name} is pure: no clock, thread or I/O, so no <{include}>"
        if not room.torch and TORCH.match(include):
            yield f"{name} may not include {include}: rooms.txt does not say that it sees torch"
        if parts[0] in ("fmt", "spdlog") and (name, file) != ("base", "log.cpp"):
            yield f"{include} clashes with torch's: only base/log.cpp may include it"
    knows_both = {"nereus/core/controller/controller.h", "nereus/runtime/live/live_job.h"} <= set(includes)
    if knows_both and name != "driver":
        yield "only driver may know both the controller and the job"


def problems_of_table(rooms):
    for name, room in rooms.items():
        for other in sorted(room.allowed - room.included):
            yield f"{name} is allowed {other} and does not include it"
        if room.wing == "core" and room.torch:
            yield f"{name} is in core, which never sees torch"
        for other in sorted(room.allowed):
            if ("core", "runtime", "app").index(rooms[other].wing) > ("core", "runtime", "app").index(room.wing):
                yield f"{name} in {room.wing} may not know {other} in {rooms[other].wing}"
        if room.wing == "runtime" and room.allowed & DECIDES:
            yield f"{name} runs things and may not know planner or controller"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sources = root / "src" / "nereus"
    try:
        rooms = read_table(sources / "rooms.txt")
    except ValueError as error:
        print(f"src/nereus/rooms.txt: {error}")
        return 1
    files = sorted(file for suffix in ("h", "cpp") for file in sources.rglob(f"*.{suffix}"))
    failed = False
    for file in files:
        wing, name = file.relative_to(sources).parts[:2]
        found = [f"{wing}/{name} is not in rooms.txt"] if name not in rooms else problems_of(
            rooms[name], name, file.name, INCLUDE.findall(file.read_text()), rooms)
        for problem in found:
            print(f"{file.relative_to(root)}: {problem}")
            failed = True
    for problem in problems_of_table(rooms):
        print(f"src/nereus/rooms.txt: {problem}")
        failed = True
    print(f"rooms and what they include: {len(files)} files {'with problems' if failed else 'fine'}")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
