"""What happens inside a worker process: it loads a function of a stranger and calls it.

Compiled into the program (python_workers.cpp). Nothing that the function gives, raises or changes leaves the process
but as a JSON text of plain values.
"""

import contextlib
import ctypes
import inspect
import json
import os
import resource
import signal
import sys
import types

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Address space beyond the memory limit: libraries reserve more than they use.
ROOM = 2 << 30
LONGEST_REASON = 500


class Refusal(Exception):
    """What we say of a function or its answer; shown as it is."""


class State:
    """Of this process."""

    call = None  # from an argument (JSON) to a value of plain types
    home = None  # the working directory
    folder = None  # of the stranger's file, whose lines are worth naming
    scratch = None  # a folder that ends with the pool; None: there is none
    prints = None  # where prints go, should descriptors 1 and 2 be closed
    loop = None  # of asyncio, the same for all calls: sessions and locks belong to one


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def limit(kind, value):
    """Lowers a limit for good."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def enter(channel, memory, scratch):
    """First thing in the process. `channel`: the pool's descriptor, not for strangers; memory 0: no limit."""
    pool = os.getppid()
    # Signals as in any Python: what strangers start must end when told to. SIGTERM ends at once, also within C code.
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pool:
        os._exit(1)
    # What its children leave behind stays below this process, so that its end is theirs too.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.close(channel)
    limit(resource.RLIMIT_CORE, 0)
    if memory:
        limit(resource.RLIMIT_DATA, memory + ROOM)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")  # a machine out of memory loses this process before the job
    State.home = os.getcwd()
    State.scratch = scratch
    State.prints = os.dup(1)
    sys.stdout = sys.stderr = None
    restore()


def restore():
    """Undoes what a call may have done to the surroundings of the next one."""
    with contextlib.suppress(OSError):
        os.chdir(State.home)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(State.prints, number)
        if getattr(getattr(sys, name), "closed", True):
            setattr(sys, name, open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False))


def one_line(text, most=LONGEST_REASON):
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    return text if len(text) <= most else text[:most] + "…"


def text_of(value):
    """How a person may recognise it."""
    try:
        return one_line(repr(value), 80)
    except BaseException:
        return f"an object of type {type(value).__name__}"


def place_of(error):
    """The innermost line of the stranger's own files in the traceback."""
    place, trace = "", error.__traceback__
    while trace is not None:
        folder, name = os.path.split(trace.tb_frame.f_code.co_filename)
        if folder == State.folder:
            place = f" ({name} line {trace.tb_lineno})"
        trace = trace.tb_next
    return place


def failure(error):
    kind = "memory" if isinstance(error, MemoryError) else "raised"
    try:
        said = str(error)
    except BaseException:
        said = ""
    if isinstance(error, Refusal):
        return {"failure": kind, "reason": one_line(said)}
    name = type(error).__name__
    return {"failure": kind, "reason": one_line(name + (f": {said}" if said else "")) + place_of(error)}


def contained(work, largest):
    """The outcome of work() as JSON: {"value"}, or {"failure", "reason"}."""
    process = os.getpid()
    try:
        text = json.dumps({"value": work()}, allow_nan=False)
        if len(text) > largest:
            text = json.dumps({"failure": "size", "reason": f"the answer has {len(text)} characters, at most {largest} may be"})
    except BaseException as error:
        text = json.dumps(failure(error))
    if os.getpid() != process:
        os._exit(0)  # a process that the function forked came out of it as well
    return text


def finished(value):
    """What a coroutine comes to; other values as they are."""
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def outcome():
        return await value

    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    return State.loop.run_until_complete(outcome())


def number():
    """Which process this is."""
    return os.getpid()


def load(source, arguments, largest):
    """Makes this worker ready: `source` is a module whose open_task(arguments) gives the function to call."""

    def work():
        module = types.ModuleType("nereus_task")
        sys.modules[module.__name__] = module
        exec(compile(source, "<nereus task>", "exec"), module.__dict__)
        State.call = module.open_task(**arguments)

    restore()
    return contained(work, largest)


def call(argument, largest):
    """The outcome of one call; "null" in a worker that has not loaded anything."""
    if State.call is None:
        return "null"
    restore()
    return contained(lambda: State.call(argument), largest)
