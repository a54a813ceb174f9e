"""A reward that a user wrote, in a worker process: loaded as verl does, its answers made plain.

Compiled into the program (python_reward.cpp).
"""

import hashlib
import importlib.machinery
import json
import math
import os
import sys
import types

from nereus_worker import Refusal, State, finished, text_of

MOST_METRICS = 1000


def module_of(file, source):
    """Runs the file under a name of its own: called math.py, it must not be what others get for `import math`.
    A stub of that name lets processes that the user's code starts find its functions."""
    name = "custom_module_" + hashlib.sha256(file.encode()).hexdigest()[:12]
    # At the end, so that neighbours of the file do not stand in for anybody's modules either.
    State.folder = os.path.dirname(file)
    sys.path.append(State.folder)
    if State.scratch is not None:
        with open(os.path.join(State.scratch, name + ".py"), "w", encoding="utf-8") as stub:
            stub.write(STUB.format(file=file))
        sys.path.append(State.scratch)
    module = types.ModuleType(name)
    module.__file__ = file
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=file)
    sys.modules[name] = module  # a dataclass or a pickle asks where it was defined
    exec(compile(source, file, "exec"), module.__dict__)
    return module


STUB = """import importlib.util
import sys

_spec = importlib.util.spec_from_file_location(__name__, {file!r})
_module = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
"""


def number(value):
    """A number of Python, numpy or torch as a float; None for what is none."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, (str, bytes)) or not hasattr(type(value), "__float__"):
        return None
    # An array of one element has an item, but is no float.
    return float(value.item() if hasattr(type(value), "item") else value)


def metric(value):
    """As number(), but None for all that cannot be averaged."""
    try:
        found = number(value)
    except Exception:
        return None
    return found if found is not None and math.isfinite(found) else None


def score_of(value, what):
    """Its float, which must be finite."""
    try:
        found = number(value)
    except Exception as error:
        raise Refusal(f"{what} is {text_of(value)}, which gives no number ({type(error).__name__})") from None
    if found is None or not math.isfinite(found):
        raise Refusal(f"{what} is {text_of(value)}, not a finite number")
    return found


def plain(answer):
    if not isinstance(answer, dict):
        return {"score": score_of(answer, "its answer"), "extra": {}}
    if "score" not in answer:
        raise Refusal(f'its answer is {text_of(answer)}, which has no "score"')
    extra = {key: metric(value) for key, value in answer.items() if isinstance(key, str) and key != "score"}
    extra = {str(key): value for key, value in extra.items() if value is not None}
    if len(extra) > MOST_METRICS:
        raise Refusal(f"its answer has {len(extra)} metrics, more than {MOST_METRICS}")
    return {"score": score_of(answer["score"], '"score"'), "extra": extra}


def open_task(file, function, source):
    """`source` is the file as it was at the start, each byte a character: all workers run the same, whatever
    becomes of the file."""
    module = module_of(file, source.encode("latin-1"))
    found = getattr(module, function, None)
    if not callable(found):
        raise Refusal(f"it has no function {function}")
    return lambda arguments: plain(finished(found(**json.loads(arguments))))
