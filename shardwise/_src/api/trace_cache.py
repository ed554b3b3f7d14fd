"""What is known of functions that are staged: found by the function, or by what it does.

    known_of(fun, key)       # the same for the same function, as long as it lives
    shelf_of(recipe, key)    # the same for functions made anew that do the same

The first is JAX's rule: who jits a function twice gets what was staged first, though a global that
it reads has another value by now. It is weak: what is in the tables may not lead back to the
function (`leads_to`), which would keep both alive. The second is for functions that are made anew,
also by `grad` and `vmap`: these are compared by their fingerprints (`core/fingerprints.py`), taken
before and after staging, and again when a shelf is asked for. Shelves hold nothing of the user's.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakSet

from shardwise._src.base.caches import make_room, snapshot
from shardwise._src.core.fingerprints import is_library
from shardwise._src.core.program import Program

FUNCTIONS = 4096  # functions and options
SHELVES = 512
TRACES = 64  # on each
EQUATIONS = 50_000  # of all programs on shelves
CONSTANTS = 1 << 16  # bytes of those of one program on a shelf
OBJECTS = 16384  # looked at to see that something leads nowhere


class TraceCache:
    """Tables of one function and its options.

    traces: what it was staged to; the keys are (key of the context, tree, static arguments, type
            of each leaf ...).
    calls:  what runs a call; the keys are the same with signatures for types. Those of calls with
            arrays only have neither tree nor static arguments.
    was_staged: whether anything was, also if it is forgotten by now.
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
    """A function, and what is known of it. State: what it is made of, where that can change."""

    __slots__ = ("key", "known", "state")
    key: Any
    known: TraceCache
    state: Any


_by_function: dict[Any, _Entry] = {}


def trace_cache_of(fun: Any, key: Any) -> TraceCache:
    """What is known of a function with the options that the key stands for (None: the default).

    It is nobody else's where functions cannot be told apart or weakly referenced: bound methods,
    which are made at each access, and objects whose hash changes with their contents or fails.
    """
    at = id(fun) if key is None else (id(fun), key)
    found = _by_function.get(at)
    if found is not None and found() is fun and (
        found.state is fun.__code__ if fun.__class__ is FunctionType else found.state == _state(fun)
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
    except Exception:  # whatever the `__hash__` of a user's class, or of an option, raises
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
    """Whether objects hold a function, or may: they are followed as far as `OBJECTS` others.

    Modules, which stay, and classes of modules are not followed.
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
    """Whether something is the namespace of a module, or a class that one holds by its name."""
    if x.__class__ is dict:
        return getattr(sys.modules.get(str(x.get("__name__"))), "__dict__", None) is x
    if isinstance(x, type):
        return getattr(sys.modules.get(x.__module__), x.__name__, None) is x
    return False


def code_in(program: Program) -> tuple[list[Any], int]:
    """The parameters of equations that hold functions of the user; and how many equations it has.

    Those of held programs too. A trace waits for this: 0.1 µs an equation.
    """
    held: list[Any] = []
    programs, count = [program], 0
    for inner in programs:  # and those that are found on the way
        count += len(inner.equations)
        for equation in inner.equations:
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


# -- by recipe --


class CacheGroup:
    """What is known of all functions with one recipe, and options.

    traces: as of `Known`.
    calls:  what runs a call, and what it was staged to, with the key of that.
    size:   the equations of all programs.
    """

    __slots__ = ("recipe", "traces", "calls", "size")

    def __init__(self, recipe: Any):
        self.recipe = recipe
        self.traces: dict[tuple, Any] = {}
        self.calls: dict[tuple, tuple[Callable[[Sequence[Any]], Any], tuple, Any]] = {}
        self.size = 0

    def keep(self, key: tuple, staged: Any, count: int) -> None:
        """Keeps what was staged, a program of so many equations, if it is not too large."""
        size = sum(getattr(c, "nbytes", CONSTANTS) for c in staged.program.constants)
        if size > CONSTANTS or count > EQUATIONS:
            return
        make_room(self.traces, TRACES)
        self.traces[key] = staged
        self.size += count
        _make_room_for(count)

    def keep_call(self, key: tuple, run: Callable, trace_key: tuple) -> None:
        """Keeps what runs a call, where that is kept which it was staged to."""
        staged = self.traces.get(trace_key)
        if staged is not None:
            make_room(self.calls, TRACES)
            self.calls[key] = run, trace_key, staged

    def forget(self) -> None:
        self.traces.clear()
        self.calls.clear()
        self.size = 0


_shelves: dict[tuple[Any, Any], CacheGroup] = {}
_added = 0


def shelf_of(recipe: Any, key: Any) -> CacheGroup | None:
    """The shelf of functions with a recipe; None where the options have no key."""
    at = (recipe, key)
    try:
        found = _shelves.pop(at, None)
    except TypeError:
        return None
    if found is None:
        found = CacheGroup(recipe)
        make_room(_shelves, SHELVES)
    _shelves[at] = found  # the last one: used last
    return found


def _make_room_for(equations: int) -> None:
    """Lets go of the shelves that were used least, if there is too much on all."""
    global _added
    _added += equations  # since they were counted: counting them each time takes 20 µs
    if _added <= EQUATIONS:
        return
    _added = sum(s.size for s in snapshot(_shelves.values()))
    for at in snapshot(_shelves):
        if _added <= EQUATIONS // 2:
            break
        oldest = _shelves.pop(at, None)
        _added -= oldest.size if oldest is not None else 0


# -- forgetting --


def forget_what_is_made_of(fun: Any) -> None:
    """Forgets what is known of a function, whatever the options: `eval_shape(jit(f))` is, too."""
    for entry in snapshot(_by_function.values()):
        if entry() is fun:
            entry.known.forget()


def forget() -> None:
    """Forgets what is known of all functions."""
    _shelves.clear()
    for known in snapshot(_alive):
        known.forget()
