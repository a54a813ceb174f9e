"""The processes below one, as /proc shows them: what memory they take, and ending them all.

Compiled into the program (python_workers.cpp).
"""

import contextlib
import os
import signal
import time

PAGE = os.sysconf("SC_PAGE_SIZE")


def read(path):
    """A file of /proc; empty if its process has gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def status(pid):
    """(state, parent, session), or None if there is no such process. The name before them may hold anything."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1]), int(fields[3])) if len(fields) > 3 else None


def gone(pid):
    found = status(pid)
    return found is None or found[0] in "ZX"


def children(pid):
    """Direct children, by thread: a kernel without such lists is asked for every process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    if os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]
    everyone = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [other for other in everyone if (status(other) or ("", 0, 0))[1] == pid]


def descendants(pid):
    """Those below a process, not the process."""
    found, new = [], children(pid)
    while new:
        found += new
        new = [child for parent in new for child in children(parent)]
    return found


def memory(pids):
    """Resident bytes; pages that several share (after a fork) count in each."""
    return sum(int((read(f"/proc/{pid}/statm").split() or [0, 0])[1]) for pid in pids) * PAGE


def exact_memory(pids):
    """Resident bytes, shared pages in equal parts: slow to ask for. Where the kernel does not say, memory()."""
    total = 0
    for pid in pids:
        lines = [line.split() for line in read(f"/proc/{pid}/smaps_rollup").splitlines()]
        parts = [int(line[1]) * 1024 for line in lines if line[0] == "Pss:"]
        total += parts[0] if parts else memory([pid])
    return total


def send(pid, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(pids):
    """Takes note of the end of children that no library waits for."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def end(roots):
    """Kills processes and all below them. They are halted first: what is halted cannot fork."""
    halted = set()
    while True:
        found = set(roots).union(*(descendants(root) for root in roots)) - halted
        found = {pid for pid in found if not gone(pid)}
        if not found:
            break
        for pid in found:
            send(pid, signal.SIGSTOP)
        halted |= found
    for pid in halted:
        send(pid, signal.SIGKILL)
    reap(roots)


def end_below(pid, patience=5.0):
    """Kills everything below a process, which must be this one, or one that is halted."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        left = children(pid)
        if not left:
            return
        end(left)
        time.sleep(0.01)
