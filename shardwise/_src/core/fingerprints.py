"""A key for what a function does. Two functions, or one function at two times, have equal keys only
if staging them gives the same program.

    fingerprint_of(fun)      # None if it cannot be determined

A fingerprint contains the code, and the value of everything that the code reads from outside:
defaults, closure cells, and the globals and module attributes that it names, read at the time of
the call. Functions among these are represented by their own fingerprints. A function has no
fingerprint if it uses something that cannot be compared reliably: arrays, objects and classes of
users, bound methods, code that imports or sets globals, functions that read clocks or files, or two
functions that do the same, which code may distinguish. Libraries count as fixed: names in
shardwise, NumPy and some modules of Python are assumed never to be rebound.

A fingerprint contains values, code and library functions, but none of the user's functions.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import weakref
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from shardwise._src.base.caches import Table, register
from shardwise._src.base.lazy import defining_module
from shardwise._src.core.op import Op
from shardwise._src.runtime.backend import Device

CODES = 4096  # code objects whose facts are cached
FUNCTIONS = 64  # inspected for one fingerprint
ENTRIES = 1024  # of all lists, tuples and dicts in one fingerprint
BYTES = 1024  # per NumPy array

_FIXED = ("shardwise", "numpy", "math", "operator", "functools", "itertools", "builtins")
# Names in them that are not fixed: their results change, or are not only values.
_NOT_FIXED = frozenset(
    "random load loadtxt genfromtxt fromfile memmap open_memmap save savez savez_compressed savetxt"
    " datetime64 DataSource lib geterr seterr setbufsize getbufsize config live_arrays".split()
)
_BUILTINS = frozenset(
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter"
    " float format frozenset getattr hasattr hex int isinstance issubclass iter len list map max"
    " min next object oct ord pow range repr reversed round set slice sorted str sum tuple type zip"
    " Ellipsis NotImplemented ArithmeticError AssertionError AttributeError Exception IndexError"
    " KeyError LookupError NotImplementedError OverflowError RuntimeError StopIteration TypeError"
    " ValueError ZeroDivisionError".split()
)
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_FREE = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_UNCHANGED: tuple[type, ...] = (Op, np.dtype, Device)  # their own fingerprints
_PLAIN = frozenset((bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented)))
_WRITES = ("IMPORT_", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_ANYWHERE = frozenset(("__globals__", "__builtins__", "__subclasses__"))  # reach everything

_notes: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_MIXED = object()


def fingerprint_of(fun: Any, mutable: bool = True) -> Any:
    """The fingerprint of a function, or None if it has none.

    mutable: whether lists, dicts and small NumPy arrays count, by their current contents. To be
      sure that a program belongs to a fingerprint, compute it before and after staging.
    """
    try:
        look = _Look(mutable)
        found = look.part(fun)
        hash(found)
        if len(look.functions) > 1 and look.has_twins():
            return None
    except (_Unknown, TypeError, ValueError, RecursionError):  # no hash; an empty cell
        return None
    return found


def note(fun: Any, fingerprint: Any) -> None:
    """Records the fingerprint under which a function that is found by identity was staged.

    Callers of that function get the cached program, though it may do something else by now. So the
    function has a fingerprint only while it equals the recorded one.
    """
    if fun.__class__ is FunctionType:
        fingerprint = _MIXED if fingerprint is None else fingerprint
        if _notes.setdefault(fun, fingerprint) != fingerprint:
            _notes[fun] = _MIXED


def is_plain(value: Any) -> bool:
    """Whether a value is a Python scalar or string, None, or a tuple of these."""
    kind = value.__class__
    if kind is tuple:
        return all(map(is_plain, value))
    return kind in _PLAIN or kind is float or kind is complex


def is_library(fun: FunctionType) -> bool:
    """Whether a function is library code, whatever its attributes claim."""
    return _is_fixed(fun.__globals__.get("__name__"))


class _Unknown(Exception):
    """A value has no fingerprint."""


class _Look:
    """One inspection of a function and everything it uses."""

    __slots__ = ("mutable", "left", "functions")

    def __init__(self, mutable: bool):
        self.mutable = mutable
        self.left = ENTRIES
        # By id, partial ones too: fingerprints; while these are being computed, their numbers.
        self.functions: dict[int, Any] = {}

    def part(self, value: Any) -> Any:
        """A value as part of a fingerprint."""
        kind = value.__class__
        if kind in _PLAIN:
            return kind, value
        if kind is FunctionType:
            return self.function(value)
        if kind is float or kind is complex:
            return kind, repr(value)
        make = _MAKERS.get(kind)
        if make is not None:
            return make(self, value)
        if isinstance(value, _UNCHANGED) or _is_type_of_ours(kind):
            return value
        if isinstance(value, np.generic):
            return self.scalar(value)
        fingerprint = _fingerprint_by(kind)
        if fingerprint is not None:
            return kind, *fingerprint(value, self.part)
        if _is_permanent(value):
            return value
        raise _Unknown

    def parts(self, values: Iterable[Any]) -> list[Any]:
        return [self.part(v) for v in values]

    def entries(self, values: Any) -> tuple[Any, ...]:
        self.left -= len(values)
        if self.left < 0:
            raise _Unknown
        return values.__class__, *self.parts(values)

    def named(self, values: dict[Any, Any]) -> tuple[Any, ...]:
        return dict, self.entries((*values,)), *self.parts(values.values())

    def content(self, values: Any) -> tuple[Any, ...]:
        if not self.mutable:
            raise _Unknown
        return self.named(values) if values.__class__ is dict else self.entries(values)

    def scalar(self, x: Any) -> tuple[Any, ...]:
        if x.dtype.kind in "VO":
            raise _Unknown
        return x.__class__, x.dtype, x.tobytes()

    def array(self, x: Any) -> tuple[Any, ...]:
        if not self.mutable or x.nbytes > BYTES or x.dtype.hasobject:
            raise _Unknown
        return np.ndarray, x.dtype, x.shape, x.tobytes()

    def partial(self, value: Any) -> tuple[Any, ...]:
        given = value.keywords
        parts = self.parts((value.func, *value.args, *given.values(), value.__dict__ or None))
        found = self.functions[id(value)] = functools.partial, len(value.args), *given, *parts
        return found

    def weak(self, value: Any) -> tuple[Any, ...]:
        return weakref.ref, self.part(value())

    def steps(self, value: Any) -> tuple[Any, ...]:
        return value.__class__, *self.parts((value.start, value.stop, value.step))

    # -- functions --

    def has_twins(self) -> bool:
        """Whether two functions share a fingerprint; as keys of a dict, say, they differ."""
        by_code: dict[Any, list[Any]] = {}
        for fingerprint in self.functions.values():
            if fingerprint.__class__ is tuple:
                others = by_code.setdefault(fingerprint[0], [])
                if fingerprint in others:
                    return True
                others.append(fingerprint)
        return False

    def function(self, fun: FunctionType) -> Any:
        found = self.functions.get(id(fun))
        if found is not None:
            return found
        if len(self.functions) >= FUNCTIONS:
            raise _Unknown
        self.functions[id(fun)] = len(self.functions)
        found = self.functions[id(fun)] = self._function(fun)
        if _notes.get(fun, found) != found:
            raise _Unknown
        return found

    def _function(self, fun: FunctionType) -> Any:
        space, cells = fun.__globals__, fun.__closure__ or ()
        parts: list[Any] = [_facts_of(fun.__code__), fun.__name__]
        if fun.__defaults__:
            parts.append(self.entries(fun.__defaults__))
        if fun.__kwdefaults__:
            parts.append(("*", self.named(fun.__kwdefaults__)))
        if is_library(fun):
            if fun.__name__ in _NOT_FIXED:
                raise _Unknown
            if not cells or _is_permanent(fun):
                return fun
            return *parts, *self.parts([c.cell_contents for c in cells])
        facts = parts[0]
        if facts.reads is None:
            raise _Unknown
        for name, chains in facts.reads:
            parts.append(self.read(space[name], chains) if name in space else _builtin(name))
        for cell, chains in zip(cells, facts.cells, strict=True):
            parts.append(self.read(cell.cell_contents, chains))
        if fun.__dict__:
            parts.append((".", self.named(fun.__dict__)))
        return tuple(parts)

    def read(self, value: Any, chains: tuple[tuple[str, ...], ...]) -> Any:
        """What code reads of a global or a cell: for a module, the attributes that it names."""
        if value.__class__ is not ModuleType:
            return self.part(value)
        return value, *[self.attribute(value, chain) for chain in chains]

    def attribute(self, module: ModuleType, chain: tuple[str, ...]) -> Any:
        """The value of a chain of attributes of a module."""
        value: Any = module
        for name in chain:
            if value.__class__ is not ModuleType:
                break
            if _is_fixed(value.__name__):
                own = chain[0] == "random" and value.__name__ == "shardwise"
                if _NOT_FIXED.isdisjoint(chain[1:] if own else chain):
                    return None
                raise _Unknown
            if name not in value.__dict__:
                raise _Unknown
            value = value.__dict__[name]
        if value.__class__ is ModuleType:  # code may read anything of it
            raise _Unknown
        return self.part(value)


_MAKERS: dict[type, Any] = {
    tuple: _Look.entries,
    list: _Look.content,
    dict: _Look.content,
    np.ndarray: _Look.array,
    functools.partial: _Look.partial,
    weakref.ref: _Look.weak,
    slice: _Look.steps,
    range: _Look.steps,
}


def _builtin(name: str) -> str:
    """The part of a fingerprint for a name that is not a global."""
    if name in _BUILTINS:
        return name
    raise _Unknown


def _is_fixed(module: str | None) -> bool:
    """Whether a module is a library, whose names are never rebound."""
    first, _, rest = (module or "").partition(".")
    return first in _FIXED and not (rest and first == "numpy" and "random" in rest)


def _is_type_of_ours(kind: type) -> bool:
    """Whether this is a class of types, shardings or meshes, which are values."""
    return _is_ours(kind) and defining_module(kind).startswith("shardwise._src.types.")


def _fingerprint_by(kind: type) -> Any:
    """The method of a library class that returns fingerprints, if it has one."""
    return getattr(kind, "fingerprint", None) if _is_ours(kind) else None


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "shardwise"


def _is_permanent(value: Any) -> bool:
    """Whether a library has this value under its own name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(value, np.ufunc):
        module = "numpy"
    if value.__class__ is BuiltinFunctionType and module == "builtins":
        return name in _BUILTINS and getattr(builtins, str(name), None) is value
    if not isinstance(module, str) or not isinstance(name, str) or not _is_fixed(module):
        return False
    if name in _NOT_FIXED:
        return False
    return getattr(sys.modules.get(module), name, None) is value


# -- what code reads --


class _Facts:
    """Code, and what it and its nested code read from outside. Represents code in fingerprints.

    reads: (global name, attributes read from it ...); None if code does more than read.
    cells: the same attributes for each free variable.
    """

    __slots__ = ("code", "reads", "cells")

    def __init__(self, code: CodeType):
        self.code = code
        found: dict[tuple[bool, str], set[tuple[str, ...]]] = {}
        reads = _reads(code)
        if reads is not None:
            for place, chain in reads:
                found.setdefault(place, set()).add(chain)
        chains = {place: tuple(sorted(c)) for place, c in sorted(found.items())}
        pairs = tuple([(name, c) for (free, name), c in chains.items() if not free])
        self.reads = None if reads is None else pairs
        self.cells = tuple([chains.get((True, name), ()) for name in code.co_freevars])


_facts: Table[_Facts] = Table(__name__, "code objects", CODES)
register(__name__, "fingerprints", lambda: len(_notes), lambda: _notes.clear())


def _facts_of(code: CodeType) -> _Facts:
    found = _facts.entries.get(id(code))
    if found is None or found.code is not code:
        found = _facts.put(id(code), _Facts(code))
    return found


def _reads(code: CodeType) -> list[tuple[tuple[bool, str], tuple[str, ...]]] | None:
    """((free variable?, name), attributes) for each read in the code and its nested code.

    None if it imports something, or sets variables that others see.
    """
    found: list[tuple[tuple[bool, str], tuple[str, ...]]] = []
    steps = _steps(code)
    for at, (name, argument) in enumerate(steps):
        if name.startswith(_WRITES) or (name in _ATTRIBUTE and argument in _ANYWHERE):
            return None
        if name in ("STORE_DEREF", "DELETE_DEREF") and argument in code.co_freevars:
            return None
        is_global = name in _GLOBAL
        if is_global or (name in _FREE and argument in code.co_freevars):
            found.append(((not is_global, argument), _attributes(steps, at + 1)))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            nested = _reads(inner)
            if nested is None:
                return None
            found += [(p, c) for p, c in nested if not p[0] or p[1] in code.co_freevars]
    return found


def _steps(code: CodeType) -> list[tuple[str, Any]]:
    steps = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    return [step for step in steps if step[0] not in ("EXTENDED_ARG", "PUSH_NULL", "CACHE")]


def _attributes(steps: list[tuple[str, Any]], at: int) -> tuple[str, ...]:
    """The names of the attributes that are loaded in a chain."""
    names: list[str] = []
    while at < len(steps) and steps[at][0] in _ATTRIBUTE:
        names.append(steps[at][1])
        at += 1
    return tuple(names)
