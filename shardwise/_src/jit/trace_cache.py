"""Caches of staged functions: found by the function, or by its fingerprint.

    trace_cache_of(fun, key) # the same for the same function, for its lifetime
    cache_group_of(fingerprint, key)    # the same for newly created functions that do the same

The first follows JAX: jitting a function twice returns the first staged program, even if a global
that it reads has changed since. It is weak: the tables may not reference the function
(`leads_to`), which would keep both alive. The second is for functions that are created repeatedly,
also by `grad` and `vmap`: they are compared by their fingerprints (`core/fingerprints.py`), taken
before and after staging, and again when a group is looked up. Groups contain no user objects.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakSet

from shardwise._src.base.caches import make_room, register, snapshot
from shardwise._src.core.fingerprints import is_library
from shardwise._src.core.program import Program

FUNCTIONS = 4096  # functions and options
CACHE_GROUPS = 512
TRACES = 64  # on each
EQUATIONS = 50_000  # of all programs in groups
CONSTANTS = 1 << 16  # bytes per program in a group
OBJECTS = 16384  # visited to check for references


class TraceCache:
    """Tables of one function and its options.

    traces: the staged programs; the keys are (key of the context, pytree, static arguments, type
            of each leaf ...).
    calls:  the functions that run calls; the keys are the same with signatures for types, or the
            short ones of `Stageable.keep_short`.
    was_staged: whether it was ever staged, even if the program has been evicted.
    """

    __slots__ = ("traces", "calls", "was_staged", "__weakref__")

    def __init__(self) -> None:
        self.traces: dict[tuple, Any] = {}
        self.calls: dict[tuple, Callable[[Sequence[Any]], Any]] = {}
        self.was_staged = False
        _alive.add(self)

    def forget(self) -> None:
        self.traces.clear()
        self.calls.clear()


_alive: WeakSet[TraceCache] = WeakSet()

# -- by function --


class _Entry(weakref.ref):
    """A function, and its caches. State: the function's constituents, if these can change."""

    __slots__ = ("key", "known", "state")
    key: Any
    known: TraceCache
    state: Any


_by_function: dict[Any, _Entry] = {}


def trace_cache_of(fun: Any, key: Any) -> TraceCache:
    """The caches of a function with the options that the key represents (None: the default).

    They are not shared if functions cannot be distinguished or weakly referenced: bound methods,
    which are created at each access, and objects whose hash depends on their contents or fails.
    """
    at = id(fun) if key is None else (id(fun), key)
    found = _by_function.get(at)
    if (
        found is not None
        and found() is fun
        and (
            found.state is fun.__code__
            if fun.__class__ is FunctionType
            else found.state == _state(fun)
        )
    ):
        return found.known
    return _new_entry(fun, at)


def _new_entry(fun: Any, at: Any) -> TraceCache:
    known = TraceCache()
    if fun.__class__ is MethodType:
        return known
    try:
        entry = _Entry(fun, _gone)
        entry.state = _state(fun)
        hash(at)
    except Exception:  # any error in the `__hash__` of a user's class, or of an option
        return known
    entry.key, entry.known = at, known
    make_room(_by_function, FUNCTIONS)
    _by_function[at] = entry
    return known


def _state(fun: Any) -> Any:
    if fun.__class__ is FunctionType:
        return fun.__code__
    return None if type(fun).__hash__ is object.__hash__ else hash(fun)


def _gone(entry: _Entry) -> None:
    if _by_function.get(entry.key) is entry:
        del _by_function[entry.key]


def leads_to(fun: Any, roots: Iterable[Any]) -> bool:
    """Whether objects reference a function, or may: the search visits up to `OBJECTS` others.

    Modules, which are permanent, and classes of modules are not followed.
    """
    pending = [r for r in roots if gc.is_tracked(r)]
    seen = {*map(id, pending)}
    while pending:
        x = pending.pop()
        if x is fun or len(seen) > OBJECTS:
            return True
        if isinstance(x, ModuleType) or _is_of_module(x):
            continue
        held = [y for y in gc.get_referents(x) if gc.is_tracked(y) and id(y) not in seen]
        seen.update(map(id, held))
        pending += held
    return False


def _is_of_module(x: Any) -> bool:
    """Whether an object is a module's namespace, or a class that a module contains by its name."""
    if x.__class__ is dict:
        return getattr(sys.modules.get(str(x.get("__name__"))), "__dict__", None) is x
    if isinstance(x, type):
        return getattr(sys.modules.get(x.__module__), x.__name__, None) is x
    return False


def code_in(program: Program) -> tuple[list[Any], int]:
    """The parameters of equations that contain user functions; and how many equations it has.

    Includes nested programs. Every trace pays for this: 0.1 µs an equation.
    """
    held: list[Any] = []
    programs, count = [program], 0
    for inner in programs:  # and those found in the process
        count += len(inner.eqns)
        for equation in inner.eqns:
            op = equation.op
            if op.programs:
                programs += [p for p in equation.programs() if p not in programs]
                if any(map(_is_of_user, equation.params.values())):
                    held.append(equation.params)
            if op.user_code or op.host is not None:
                held.append(equation.params)
    return held, count


def _is_of_user(value: Any) -> bool:
    return value.__class__ is FunctionType and not is_library(value)


# -- by fingerprint --


class CacheGroup:
    """The caches of all functions with one fingerprint, and options.

    traces: as in `TraceCache`.
    calls:  the function that runs a call, its staged program, and the key of that.
    size:   the equations of all programs.
    """

    __slots__ = ("fingerprint", "traces", "calls", "size")

    def __init__(self, fingerprint: Any):
        self.fingerprint = fingerprint
        self.traces: dict[tuple, Any] = {}
        self.calls: dict[tuple, tuple[Callable[[Sequence[Any]], Any], tuple, Any]] = {}
        self.size = 0

    def keep(self, key: tuple, staged: Any, count: int) -> None:
        """Caches a staged program with this number of equations, if it is not too large."""
        size = sum(getattr(c, "nbytes", CONSTANTS) for c in staged.program.consts)
        if size > CONSTANTS or count > EQUATIONS:
            return
        make_room(self.traces, TRACES)
        self.traces[key] = staged
        self.size += count
        _make_room_for(count)

    def keep_call(self, key: tuple, run: Callable, trace_key: tuple) -> None:
        """Caches the function that runs a call, if its staged program is cached."""
        staged = self.traces.get(trace_key)
        if staged is not None:
            make_room(self.calls, TRACES)
            self.calls[key] = run, trace_key, staged

    def forget(self) -> None:
        self.traces.clear()
        self.calls.clear()
        self.size = 0


_cache_groups: dict[tuple[Any, Any], CacheGroup] = {}
_added = 0


def cache_group_of(fingerprint: Any, key: Any) -> CacheGroup | None:
    """The cache group of functions with a fingerprint; None if the options have no key."""
    at = (fingerprint, key)
    try:
        found = _cache_groups.pop(at, None)
    except TypeError:
        return None
    if found is None:
        found = CacheGroup(fingerprint)
        make_room(_cache_groups, CACHE_GROUPS)
    _cache_groups[at] = found  # moved to the end: most recently used
    return found


def _make_room_for(equations: int) -> None:
    """Evicts the least recently used groups, if the total is too large."""
    global _added
    _added += equations  # since they were counted: counting them each time takes 20 µs
    if _added <= EQUATIONS:
        return
    _added = sum(s.size for s in snapshot(_cache_groups.values()))
    for at in snapshot(_cache_groups):
        if _added <= EQUATIONS // 2:
            break
        oldest = _cache_groups.pop(at, None)
        _added -= oldest.size if oldest is not None else 0


# -- clearing --


def forget_what_is_made_of(fun: Any) -> None:
    """Clears the caches of a function, for all options: also those of `eval_shape(jit(f))`."""
    for entry in snapshot(_by_function.values()):
        if entry() is fun:
            entry.known.forget()


def _clear() -> None:
    """Clears the caches of all functions."""
    _cache_groups.clear()
    for known in snapshot(_alive):
        known.forget()


register(
    __name__, "staged programs",
    lambda: sum([len(known.traces) for known in snapshot(_alive)]), _clear,
)  # fmt: skip
