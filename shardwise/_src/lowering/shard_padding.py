"""Padding of uneven shards, at the boundary between programs and buffers.

A dimension of size n in k tiles is stored as k·ceil(n/k) elements. A program first slices its
arguments to their logical sizes (`cut`) and pads its results last (`pad`); XLA's partitioner splits
the sizes in between by the same rule, so neither moves data. An elementwise program can process
the padding as well: it is compiled for the padded sizes (`at_padded_sizes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.arrays.signature import padded_type, padding_value, stored_type
from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import Rewriting
from shardwise._src.lowering.emitter import Emitter, tensor_text
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.extended import ExtendedDType


def cut(emitter: Emitter, name: str, t: ArrayType, sharding: Any) -> str:
    """An argument without its padding."""
    if sharding is None:
        return name
    stored, held = stored_type(t), padded_type(t, sharding)
    if held.shape == stored.shape:
        return name
    whole = ", ".join(f"0:{n}:1" for n in stored.shape)
    types = f"({tensor_text(held)}) -> {tensor_text(stored)}"
    logical = emitter.let(f"stablehlo.slice {name} [{whole}] : {types}")
    return emitter.constrained(logical, stored, sharding)


def pad(emitter: Emitter, name: str, t: ArrayType, sharding: Any) -> str:
    """A result with the padding that its shards need."""
    if sharding is None:
        return name
    stored, held = stored_type(t), padded_type(t, sharding)
    if held.shape == stored.shape:
        return name
    fill = emitter.scalar(padding_value(stored.dtype), stored.dtype)
    config = [(0, n - m, 0) for n, m in zip(held.shape, stored.shape, strict=True)]
    return emitter.pad(name, fill, stored, config)


def at_padded_sizes(
    program: Program, in_shardings: Sequence[Any], out_shardings: Sequence[Any]
) -> tuple[Program, list[Any]] | None:
    """The program over padded sizes, and its result shardings, if that is equivalent.

    It is, if all ops are elementwise and all arrays have one shape and one uneven sharding.
    """
    if program.consts or any(not e.op.pointwise for e in program.eqns):
        return None
    sharding = _common_sharding(program.in_types, in_shardings)
    if sharding is None:
        return None
    shape = next(t.shape for t in program.in_types if t.shape)
    plain = sharding  # default memory kind: arguments elsewhere do not move the results
    if getattr(sharding, "_memory_kind", None) is not None:
        plain = sharding.with_memory_kind(None)
    outs: list[Any] = []
    for t, asked in zip(program.out_types, out_shardings, strict=True):
        if t.shape and not (asked is None or asked.is_equivalent_to(sharding, t.ndim)):
            return None
        outs.append((asked or plain) if t.shape else asked)
    return _resized(program, sharding.padded_shape(shape)), outs


def _common_sharding(types: Sequence[ArrayType], shardings: Sequence[Any]) -> Any:
    """The uneven sharding that all arguments but scalars have, over one shape; else None."""
    found: Any = None
    shape: tuple[int, ...] = ()
    for t, s in zip(types, shardings, strict=True):
        if not t.shape:
            continue
        if s is None or isinstance(t.dtype, ExtendedDType):
            return None
        found, shape = found or s, shape or t.shape
        if t.shape != shape or not (s is found or s.is_equivalent_to(found, t.ndim)):
            return None
    return None if found is None or found.is_even(shape) else found


def _resized(program: Program, shape: tuple[int, ...]) -> Program:
    """An elementwise program with all its arrays in another shape."""

    def resized(v: Var) -> Var:
        return Var(v.aval.update(shape=shape)) if v.aval.shape else Var(v.aval)

    new = Rewriting(fresh=resized)
    inputs = [resized(v) for v in program.inputs]
    outputs = new.add(program, inputs)
    return program.replace(inputs=inputs, outvars=outputs, eqns=new.eqns)
