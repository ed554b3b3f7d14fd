"""`inspect_sharding`: passes the sharding of a value to a user function.

It has an effect and no results. Run eagerly, it calls the function immediately; in a program it
does nothing itself: the executable calls the function after compiling the program.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters

INSPECT = "inspect_sharding"


def _type(op: Op, x: ArrayType, *, callback: Any) -> tuple[ArrayType, ...]:
    return ()


def _dims(op: Op, x: ArrayType, *, callback: Any) -> Dims:
    return Dims((letters(x.ndim),), ())


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, callback: Any) -> list[str]:
    return []


def _jvp(op: Op, primals: Any, tangents: Any, *, callback: Any) -> tuple[list[Any], list[Any]]:
    return inspect_sharding(*primals, callback=callback), []


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, callback: Any
) -> tuple[list[Any], list[Any]]:
    return inspect_sharding(*args, callback=callback), []


def _eager(op: Op, args: Any, params: dict[str, Any]) -> list[Any]:
    params["callback"](args[0].sharding)
    return []


inspect_sharding = Op(
    INSPECT,
    multiple=True,
    user_code=True,
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    batch=_batch,
    eager=_eager,
    effects=frozenset({INSPECT}),
)
