"""Leaked tracers: traced values that outlive their function, and what references them.

    with checking_leaks():
        jit(f)(x)     # LeakedTracerError: … f32[3] … is referenced as `kept[0]` in main …

Transforms call this at their end. The garbage collector finds the object that references a value:
referrers are followed until one has a name.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from types import CellType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import Any, cast

from shardwise._src.base.config import check_tracer_leaks
from shardwise._src.base.errors import LeakedTracerError
from shardwise._src.base.frames import frames_by_thread
from shardwise._src.messages.source import describe, is_own

_SILENT = CellType | TracebackType  # their attributes are not shown
STEPS = 2000  # objects that are examined before a search ends
SHOWN = 5


def reject_leaks(interpreter: Any) -> None:
    """Raises if values of an interpreter that has ended are still referenced.

    Must be called when no library frame references them any more. Does nothing unless the flag
    `check_tracer_leaks` is set.
    """
    if not check_tracer_leaks.value or not _values_of(interpreter):
        return
    gc.collect()
    found = _values_of(interpreter)
    if not found:
        return
    rows = [_row(x, found) for x in found[:SHOWN]]
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise LeakedTracerError(
        f"{interpreter.describe()}, leaks traced values, which cannot be used after it has "
        f"returned: {'; '.join(rows)}{more}. Return values from the function instead of storing "
        "them outside."
    )


def _values_of(interpreter: Any) -> list[Any]:
    found = gc.get_referrers(interpreter)
    return [
        x for x in found if hasattr(x, "aval") and getattr(x, "interpreter", None) is interpreter
    ]


def _row(x: Any, ignored: Any) -> str:
    made = x.made_at()
    where = f", made at {describe(made)}," if made is not None else ""
    return f"a value of type {x.aval.str_short(True)}{where} is referenced {referrer(x, ignored)}"


def referrer(x: Any, ignored: Any = None) -> str:
    """What references an object: ``as `kept[0]` in module main``. ignored: a container to skip."""
    variables = dict(_running_variables())
    queue, steps, seen = [x], [""], {id(x), id(ignored), *map(id, _running_frames())}
    nearest = ""
    for i in range(STEPS):
        if i == len(queue):
            break
        held, step = queue[i], steps[i]
        name = _name_of(held, step) or variables.get(id(held))
        if name is not None:
            return f"as `{name[0]}{step}` in {name[1]}"
        referrers = gc.get_referrers(held)
        seen.update((id(referrers), id(queue)))
        for r in referrers:
            if id(r) in seen:
                continue
            seen.add(id(r))
            queue.append(r)
            steps.append("" if isinstance(r, FrameType) else _step(r, held) + step)
            nearest = nearest or f"by an object of type {type(r).__name__}, as `{steps[-1]}`"
    return nearest or "by an object that Python does not expose"


def _running_variables() -> Iterator[tuple[int, tuple[str, str]]]:
    """The variables of all running functions, each with the `id` of its value."""
    for frame in _running_frames():
        code = frame.f_code
        if not is_own(code.co_filename) and code.co_name != "<module>":
            where = describe((code, frame.f_lasti))
            for name, value in frame.f_locals.items():
                if name.isidentifier():
                    yield id(value), (name, where)


def _running_frames() -> Iterator[FrameType]:
    return itertools.chain.from_iterable(frames_by_thread().values())


def _name_of(x: Any, step: str) -> tuple[str, str] | None:
    """A name that needs no further search: of a module, a class, or a function."""
    if isinstance(x, dict) and "__builtins__" in x:  # the variables of a module
        return "", f"module {cast('dict[str, Any]', x).get('__name__')}"
    if isinstance(x, type):
        return x.__name__, f"module {x.__module__}"
    if isinstance(x, FunctionType):
        return x.__name__ if step[:1] in ("", ".") else "", f"function {x.__qualname__}"
    if isinstance(x, GeneratorType):
        return "", f"generator {x.__qualname__}"
    return None


def _step(owner: Any, held: Any) -> str:
    """How an owner references an object: `[0]`, `['w']`, `.attribute`, or ''."""
    if isinstance(owner, dict):
        return _key(cast("dict[Any, Any]", owner), held)
    if isinstance(owner, list | tuple):
        entries = cast("list[Any] | tuple[Any, ...]", owner)
        i = next((i for i, x in enumerate(entries) if x is held), -1)
        return _variable_of_function(entries, i) or f"[{i}]"
    if isinstance(owner, GeneratorType):
        frame = owner.gi_frame
        return next((n for n, x in frame.f_locals.items() if x is held), "") if frame else ""
    if isinstance(owner, _SILENT) or isinstance(held, dict):
        return ""
    if isinstance(owner, BaseException):
        return ".__traceback__" if isinstance(held, TracebackType) else ".args"
    names = [n for c in type(owner).__mro__ for n in getattr(c, "__slots__", ())]
    names += list(getattr(owner, "__dict__", ()))
    return next((f".{n}" for n in names if getattr(owner, n, None) is held), "")


def _key(table: dict[Any, Any], held: Any) -> str:
    key = next((k for k, x in list(table.items()) if x is held), None)
    if "__builtins__" in table:
        return str(key)
    for owner in gc.get_referrers(table):
        if isinstance(owner, FrameType | GeneratorType):
            return str(key)
        if isinstance(owner, type) or getattr(owner, "__dict__", None) is table:
            return f".{key}"
    return f"[{key!r}]"


def _variable_of_function(entries: Any, i: int) -> str:
    """The variable whose cell or default value is entry `i` of a tuple of a function."""
    for owner in gc.get_referrers(entries) if isinstance(entries, tuple) else ():
        if isinstance(owner, FunctionType):
            code = owner.__code__
            if owner.__closure__ is entries:
                return code.co_freevars[i]
            if owner.__defaults__ is entries:
                return code.co_varnames[code.co_argcount - len(owner.__defaults__ or ()) + i]
    return ""
