"""A pool of worker processes that call functions of strangers, each call with a limit of time and of memory.

A process of its own, which the job starts (python_workers.cpp, into which this is compiled) and speaks with over a
socket. Whatever the functions do touches only a worker; a worker that hangs, dies or eats too much is replaced, and
nothing that was started below it outlives it. When the socket is closed, or the job gone, all of it ends.

A message is two numbers of 8 bytes (length of the text, number) and a JSON text. From the job comes number 0 first,
the settings; then calls, with an argument each; number 0 again drops all calls before it. Each call that is not
dropped is answered under its number with {"value"}, or {"failure", "reason"}; so are the settings, when the first
worker is ready or could not be made so.
"""

import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

import nereus_processes as processes
import nereus_worker as worker

try:
    import pebble
except ImportError:
    pebble = None

HEADER = struct.Struct("<QQ")
CHANNEL = 3
TICK = 0.1  # seconds between looks at a call that runs
PATIENCE = 10.0  # seconds for a worker to do what it does at once: take a call, or end when killed
MOST_PROCESSES = 1000  # below a worker
MOST_PRINTED = 1 << 16  # bytes of a burst of calls that reach the terminal
LEFT_OUT = b"\n[what else is printed is left out until the next calls]\n"


def failed(kind, reason):
    return json.dumps({"failure": kind, "reason": reason})


def ended_how(code):
    """What a process's exit code says."""
    with contextlib.suppress(ValueError):
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"died of signal {-code}"


class Channel:
    """Messages to and from the job."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.stream = self.socket.makefile("rb")
        self.lock = threading.Lock()

    def receive(self):
        """(number, text), or None when the job has closed it."""
        header = self.stream.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        length, number = HEADER.unpack(header)
        text = self.stream.read(length)
        return (number, text.decode()) if len(text) == length else None

    def send(self, number, text):
        data = text.encode()
        with self.lock, contextlib.suppress(OSError):  # a job that is gone is noticed by receive()
            self.socket.sendall(HEADER.pack(len(data), number) + data)


class Calls:
    """Those that wait for a worker."""

    def __init__(self):
        self.waiting = collections.deque()  # (number, argument, time)
        self.changed = threading.Condition()
        self.dropped = 0  # how often all were
        self.running = 0

    def add(self, number, argument):
        with self.changed:
            self.waiting.append((number, argument, time.monotonic()))
            self.changed.notify()

    def drop(self):
        with self.changed:
            self.waiting.clear()
            self.dropped += 1

    def take(self):
        with self.changed:
            self.changed.wait_for(lambda: self.waiting)
            self.running += 1
            return (*self.waiting.popleft()[:2], self.dropped)

    def done(self):
        with self.changed:
            self.running -= 1

    def backlog(self):
        """(how many wait, for how many seconds the first has)."""
        with self.changed:
            return len(self.waiting), time.monotonic() - self.waiting[0][2] if self.waiting else 0.0

    def idle(self):
        with self.changed:
            return not self.waiting and not self.running


class Worker:
    """One worker process, in a pool of pebble's of its own: whatever user code does to the descriptors and locks by
    which pebble reaches a worker, it does to no other. Used by one thread."""

    def __init__(self, settings, calls):
        self.settings = settings
        self.calls = calls
        self.pool = None
        self.process = None  # the worker's number, once it is known
        self.loaded = False
        self.closed = False

    def load(self):
        """Makes it ready, unless it is; what went wrong, or None."""
        if self.loaded:
            return None
        answer = self.ask(worker.number, [], PATIENCE)
        if isinstance(answer, int):
            self.process = answer
            task = [self.settings["source"], self.settings["arguments"], self.settings["largest"]]
            answer = self.ask(worker.load, task, self.settings["start_timeout"])
            self.loaded = "value" in json.loads(answer)
        return None if self.loaded else answer

    def outcome(self, argument, dropped):
        """The answer to a call; None if it was dropped."""
        for _ in range(2):
            problem = self.load()
            if problem is not None:
                return problem
            answer = self.ask(worker.call, [argument, self.settings["largest"]], self.settings["timeout"], dropped)
            if answer != "null":
                return answer
            self.loaded = False  # it died while it had nothing to do, and has been replaced
        return failed("died", "workers end as soon as they have loaded the function")

    def ask(self, function, arguments, timeout, dropped=None):
        """What the function returns in the worker, or a failure as a JSON text; None if the call was dropped."""
        if self.closed:
            return failed("died", "the pool has been closed")
        if self.pool is None:
            channel_and_limits = [CHANNEL, self.settings["memory"], self.settings["scratch"]]
            self.pool = pebble.ProcessPool(1, initializer=worker.enter, initargs=channel_and_limits,
                                           context=multiprocessing.get_context("fork"))
        problem = []
        try:
            future = self.pool.schedule(function, arguments, timeout=timeout)
            self.watch(future, dropped, problem)
            return future.result(0)
        except Exception as error:
            self.process, self.loaded = None, False
            if problem:
                return None if problem[0] is None else failed(*problem[0])
            if isinstance(error, pebble.ProcessExpired):
                return failed("died", "the worker " + ended_how(error.exitcode))
            if isinstance(error, TimeoutError):
                return failed("timeout", f"took longer than {timeout:g} s")
            self.abandon()
            return failed("died", f"the worker broke down: {type(error).__name__}: {error}")

    def watch(self, future, dropped, problem):
        """Waits for the end of a call and brings it about where pebble would not: problem[0] says why, None that
        nobody waits for it any more."""
        began = time.monotonic()
        while not concurrent.futures.wait([future], timeout=TICK).done:
            if not problem:
                problem += self.reasons_to_end(future, dropped, time.monotonic() - began)
                if problem:
                    future.cancel()
                    ended = time.monotonic()
            elif time.monotonic() - ended > PATIENCE:
                self.abandon()
                return

    def reasons_to_end(self, future, dropped, took):
        if dropped is not None and dropped != self.calls.dropped:
            return [None]
        if not future.running():
            return [("died", "the worker took no call")] if took > PATIENCE else []
        if self.process is None:
            return []
        if processes.gone(self.process):
            time.sleep(2 * TICK)  # pebble may have seen it too, and knows how it ended
            return [] if future.done() else [("died", "the worker ended with exit code 0")]
        below = [self.process, *processes.descendants(self.process)]
        most = self.settings["memory"]
        if most and processes.memory(below) > most and processes.exact_memory(below) > most:
            processes.end(below)
            return [("memory", "took more memory than it may")]
        if len(below) > MOST_PROCESSES:
            processes.end(below)
            return [("died", f"started more than {MOST_PROCESSES} processes")]
        return []

    def abandon(self):
        """Of a pool that no longer answers."""
        pool, self.pool = self.pool, None
        if self.process is not None:
            processes.end([self.process])
        pool.stop()
        launch(pool.join)

    def close(self):
        """From another thread; no worker is made after this."""
        self.closed = True
        pool = self.pool
        if pool is not None:
            pool.stop()


class Prints:
    """What workers print goes to the job's standard error, but not more than a person would read. A terminal that
    takes nothing loses it: nobody waits for it."""

    def __init__(self):
        self.terminal = os.dup(2)
        self.source, sink = os.pipe()
        for descriptor in (1, 2):
            os.dup2(sink, descriptor)
        os.close(sink)
        self.printed = 0

    def pump(self):
        while data := os.read(self.source, 4096):
            if self.printed <= MOST_PRINTED:
                self.printed += len(data)
                self.show(data if self.printed <= MOST_PRINTED else LEFT_OUT)

    def show(self, data):
        with contextlib.suppress(OSError):
            poll = select.poll()
            poll.register(self.terminal, select.POLLOUT)
            if poll.poll(0):
                os.write(self.terminal, data)

    def begin_burst(self):
        self.printed = 0


class Server:
    def __init__(self, settings, channel):
        self.settings = settings
        self.channel = channel
        self.prints = Prints()
        self.calls = Calls()
        self.workers = [Worker(settings, self.calls)]
        self.loading = 0.0  # seconds that the first worker took to load the function
        self.took = 0.0  # seconds of all calls so far
        self.answered = 0
        self.strays = set()

    def start(self):
        """The first worker, which tells whether the function can be loaded."""
        began = time.monotonic()
        problem = self.workers[0].load()
        self.loading = time.monotonic() - began
        self.channel.send(0, problem or json.dumps({"value": None}))
        self.serve(self.workers[0])

    def serve(self, mine):
        while True:
            number, argument, dropped = self.calls.take()
            began = time.monotonic()
            answer = mine.outcome(argument, dropped)
            self.took += time.monotonic() - began
            self.answered += 1
            self.calls.done()
            if answer is not None:
                self.channel.send(number, answer)

    def grow(self):
        """One worker more, if calls would otherwise wait for longer than it takes to make one."""
        waiting, longest = self.calls.backlog()
        if not waiting or len(self.workers) >= self.settings["workers"]:
            return
        expected = self.took / max(1, self.answered) * waiting / len(self.workers)
        if max(expected, longest) > max(0.05, self.loading):
            self.workers.append(Worker(self.settings, self.calls))
            launch(self.serve, self.workers[-1])

    def sweep(self):
        """Ends what a worker that is gone has left behind: it has become this process's child. A worker that was
        forked this moment looks alike until it is known, so that only what is seen twice is a stray."""
        below = set(processes.children(os.getpid()))
        own = {pid for pid in below if (processes.status(pid) or (0, 0, 0))[2] == os.getsid(0)}
        strays = below - own - {process.pid for process in multiprocessing.active_children()}
        processes.end(strays & self.strays)
        self.strays = strays

    def look_after(self):
        while True:
            time.sleep(0.05)
            self.grow()
            self.sweep()

    def run(self):
        """Until the job closes the channel."""
        for loop in (self.start, self.look_after, self.prints.pump):
            launch(loop)
        while (message := self.channel.receive()) is not None:
            number, text = message
            if self.calls.idle():
                self.prints.begin_burst()
            if number == 0:
                self.calls.drop()
            else:
                self.calls.add(number, text)

    def close(self):
        for each in list(self.workers):
            each.close()
        processes.end_below(os.getpid())


def launch(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


@contextlib.contextmanager
def scratch_folder():
    """None where there is no room for one."""
    try:
        folder = tempfile.mkdtemp(prefix="nereus-")
    except OSError:
        folder = None
    yield folder
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def serve(settings, channel):
    worker.prctl(worker.PR_SET_CHILD_SUBREAPER, 1)
    with scratch_folder() as settings["scratch"]:
        server = Server(settings, channel)
        server.run()
        server.close()
    os._exit(0)  # threads may wait for workers that are gone


def main():
    # The job's end is seen on the channel; a signal to everybody must not keep this process from clearing up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(CHANNEL)
    message = channel.receive()
    if message is None:
        return
    if pebble is None:
        channel.send(0, failed("start", f"{sys.executable} has no package pebble"))
        return
    pebble.CONSTS.term_timeout = 0.5
    serve(json.loads(message[1]), channel)
