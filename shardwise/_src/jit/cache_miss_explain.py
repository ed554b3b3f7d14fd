"""Explains why a call of a jitted function missed the cache (`explain_cache_misses`).

The key of the call is compared with those of earlier calls: with the one that differs least.

    jit of step (model.py:12): cache miss; differs from the closest of 2 cached calls:
      batch['x'] has shape (16, 8), not (8, 8)
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import WeakSet

from shardwise._src.base.context import NamedAxis
from shardwise._src.base.flags import FLAGS, USER_CONTEXTS
from shardwise._src.messages.argument_names import name_of, parameters_of
from shardwise._src.messages.tree_paths import tree_text

_OTHER_TREE = "the arguments have the pytree structure"
_log = logging.getLogger("shardwise.jit")
_seen: WeakSet[Any] = WeakSet()  # code of functions that have been called


def log_miss(
    fun: Callable, key: tuple, known: Collection[tuple], names: Sequence[str], before: str = ""
) -> None:
    """Logs why `key` is new.

    key:   (context key, pytree, static arguments, signature or type of each leaf ...).
    known: keys of earlier calls; keys of another form are skipped.
    names: of the leaves.
    before: the history of this function object, if any; used if no earlier call is known.
    """
    code = _code(fun)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    why = _reason(fun, key, known, names, before)
    _log.warning("jit of %s%s: cache miss; %s", name_of(fun), where, why)


def _reason(
    fun: Callable, key: tuple, known: Collection[tuple], names: Sequence[str], before: str
) -> str:
    found = [_differences(fun, key, k, names) for k in known if is_full(k)]
    if not found:
        return before or _first_call(fun)
    shown = "\n  ".join(min(found, key=_distance)) or "nothing: the cached entry was cleared"
    many = f"the closest of {len(found)} cached calls"
    count = "the only cached call" if len(found) == 1 else many
    return f"differs from {count}:\n  {shown}"


def _code(fun: Callable) -> Any:
    return getattr(inspect.unwrap(fun), "__code__", None)


def _distance(lines: list[str]) -> tuple[bool, int]:
    return any(line.startswith(_OTHER_TREE) for line in lines), len(lines)


def is_full(key: tuple) -> bool:
    """Whether a key has a pytree and static arguments; short keys add no information."""
    return len(key) >= 3 and hasattr(key[1], "num_leaves")


def _first_call(fun: Callable) -> str:
    code = _code(fun)
    again = code is not None and code in _seen
    if code is not None:
        _seen.add(code)
    if not again:
        return "the function has not been called before."
    return (
        "this function object has not been called before, but another one with the same code has. "
        "It is created again each time: jit it once, outside of the loop or function that creates "
        "it."
    )


def _differences(fun: Callable, new: tuple, old: tuple, names: Sequence[str]) -> list[str]:
    """What differs between two calls, one line each."""
    lines = _of_contexts(new[0], old[0]) if new[0] is not old[0] else []
    lines += _of_statics(fun, new[2], old[2])
    if new[1] != old[1]:
        return [*lines, f"{_OTHER_TREE} {tree_text(new[1])}, not {tree_text(old[1])}"]
    for name, a, b in zip(names, new[3:], old[3:], strict=True):
        if a is not b:
            lines += [f"{name} {what}" for what in _of_leaves(a, b)]
    return lines


def _sizes_of(axes: Sequence[NamedAxis]) -> dict[Any, int]:
    return {axis.name: axis.size for axis in axes}


def _of_contexts(new: Any, old: Any) -> list[str]:
    (mesh, axes, flags, *kernel), (old_mesh, old_axes, old_flags, *old_kernel) = (
        new.parts,
        old.parts,
    )
    lines = []
    if mesh != old_mesh:
        alike = repr(mesh) == repr(old_mesh)
        other = "over other devices" if alike else f"not {old_mesh}"
        lines.append(f"the mesh in scope is {mesh}, {other}")
    if axes != old_axes:
        lines.append(f"the named axes in scope are {_sizes_of(axes)}, not {_sizes_of(old_axes)}")
    if kernel != old_kernel:
        lines.append("it is called in a kernel with another grid, or not in the same kernel")
    values, old_values = dict(flags), dict(old_flags)
    for name in sorted({*values, *old_values}):
        own = name not in FLAGS
        default = USER_CONTEXTS[name].default if own else FLAGS[name].default
        a, b = values.get(name, default), old_values.get(name, default)
        if a != b:
            what = "a user context" if own else f"the flag {name}"
            lines.append(f"{what} is {a!r}, not {b!r}")
    return lines


def _of_statics(fun: Callable, new: Any, old: Any) -> list[str]:
    if new == old:
        return []
    parameters = parameters_of(fun)

    def by_name(static: Any) -> dict[str, list[Any]]:
        numbered: dict[str, list[Any]] = {parameters.at(i): rest for i, *rest in static[0]}
        return numbered | {parameters.keyword(name): rest for name, *rest in static[1]}

    ours, theirs = by_name(new), by_name(old)
    lines = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs:
            lines.append(f"static argument {name} is given: {ours[name][1]!r}")
        elif name not in ours:
            lines.append(f"static argument {name} is not given; it was {theirs[name][1]!r}")
        elif ours[name] != theirs[name]:
            lines.append(_of_values(name, ours[name][1], theirs[name][1]))
    return lines


def _of_values(name: str, new: Any, old: Any) -> str:
    if repr(new) != repr(old):
        return f"static argument {name} is {new!r}, not {old!r}"
    kind = type(new).__name__
    return f"static argument {name} is {new!r}, which does not equal the earlier one of type {kind}"


def _of_leaves(new: Any, old: Any) -> list[str]:
    """What differs between two signatures (or types) of an argument."""
    a, b = getattr(new, "type", new), getattr(old, "type", old)
    lines = []
    if a.shape != b.shape:
        lines.append(f"has shape {a.shape}, not {b.shape}")
    if a.dtype != b.dtype:
        lines.append(f"has dtype {a.dtype}, not {b.dtype}")
    if a.weak_type != b.weak_type:
        weak = "weakly typed (from a Python scalar)"
        lines.append(f"is {weak}" if a.weak_type else f"is not {weak}")
    here, there = getattr(new, "sharding", a.sharding), getattr(old, "sharding", b.sharding)
    if here is not there and here != there:
        lines.append(f"is {_place(here)}, not {_place(there)}")
    if getattr(new, "committed", None) != getattr(old, "committed", None):
        lines.append("is committed to its device" if new.committed else "is not committed")
    if a.varying != b.varying:
        lines.append(f"varies along {sorted(a.varying)}, not {sorted(b.varying)}")
    return lines or [f"is {new}, not {old}"]


def _place(sharding: Any) -> str:
    return "on the host" if sharding is None else f"on {sharding}"
