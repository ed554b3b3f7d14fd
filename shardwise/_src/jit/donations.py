"""Reports donated arguments of `jit` whose memory no result could reuse, with advice.

For example:

    jit of step: no result could reuse the memory of 12 donated arguments. params['w'] of type
    f32[8,4] and 11 more: its sharding is P('x'), that of the result P(). Pass `out_shardings` with
    the argument's sharding. A result can reuse the memory of an argument with the same shape, dtype
    and sharding.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.messages.formatting import pluralize
from shardwise._src.running.executable import Executable
from shardwise._src.types.sharding import NamedSharding


def report(what: str, executable: Executable) -> str:
    """The warning; '' if all donated memory was reused."""
    unused = executable.unused_donations()
    if not unused:
        return ""
    rows: dict[str, list[int]] = {}
    for i in unused:
        rows.setdefault(_cause(executable, i), []).append(i)
    causes = [f"{_shown(executable, found)}: {cause}" for cause, found in rows.items()]
    return (
        f"{what}: no result could reuse the memory of "
        f"{pluralize(len(unused), 'donated argument')}. {' '.join(causes)} A result can reuse the "
        "memory of an argument with the same shape, dtype and sharding."
    )


def _shown(executable: Executable, found: list[int]) -> str:
    i = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{executable.names[i]} of type {executable.program.in_types[i].str_short(True)}{more}"


def _cause(executable: Executable, i: int) -> str:
    """Why no result reuses the memory of an argument, and how to fix it."""
    t, sharding = executable.program.in_types[i], executable.in_shardings[i]
    shaped = [s for s in executable.out_sigs if s.type.shape == t.shape]
    alike = [s for s in shaped if s.type.dtype == t.dtype]
    if not shaped:
        return "no result has this shape. Do not donate it."
    if not alike:
        dtype = shaped[0].type.dtype
        return f"the result of this shape has dtype {dtype}. Cast it with `.astype({t.dtype})`."
    others = [s.sharding for s in alike if s.sharding != sharding]
    if len(others) == len(alike):
        return (
            f"its sharding is {_place(sharding)}, that of the result {_place(others[0])}. Pass "
            "`out_shardings` with the argument's sharding."
        )
    return "other donated arguments already cover the results of this type. Do not donate it."


def _place(sharding: Any) -> str:
    return str(sharding.spec) if isinstance(sharding, NamedSharding) else str(sharding)
