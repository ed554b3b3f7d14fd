"""Suggestions for operands whose shardings are incompatible: the end of an error message.

    Use `shardwise.sharding.reshard(b, P())`, or specify how the result is sharded:
    `shardwise.numpy.matmul(a, b, out_sharding=P(...))`.

Every suggestion has been tried: other shardings of one operand after the other, starting with
those that gather least, until the types are compatible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.op import Op
from shardwise._src.messages.called import Called, called
from shardwise._src.messages.formatting import joined
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import NO_AXES, PartitionSpec

Types = tuple[ArrayType, ...]
REPLICATED = PartitionSpec()


def remedy(op: Op, types: Types, wanted: Sequence[Any], check: Callable[[Types], object]) -> str:
    """Suggested code, for operands of `op`.

    wanted: for each operand, the axes of its dimensions that agree with all other operands.
    check: raises if types are incompatible.
    """
    call = called()
    found = _change(types, wanted, check)
    advice = f"Use {_reshard(op, types, found, call)}"
    other = call.taking("out_sharding", "P(...)") if call else ""
    if other:
        advice += f", or specify how the result is sharded: `{other}`"
    return f"{advice}.{_moved(types, _split_arguments(call))}"


def _moved(types: Types, split: dict[str, ArrayType]) -> str:
    """A sentence with the types of arguments that were transformed into the operands."""
    forms = [(t.shape, t.spec) for t in types]
    rest = [
        f"{n} is of type {t.str_short(True)}"
        for n, t in split.items()
        if (t.shape, t.spec) not in forms
    ]
    return f" Here {joined(rest)}." if rest else ""


def _change(
    types: Types, wanted: Sequence[Any], check: Callable[[Types], object]
) -> tuple[int, PartitionSpec] | None:
    """The number of an operand and a spec for it that makes the types compatible."""
    for i in reversed(range(len(types))):
        for spec in _others(types, i, wanted):
            new = types[i].update(spec=spec)
            try:
                check((*types[:i], new, *types[i + 1 :]))
            except ShardingTypeError:
                continue
            return i, spec
    return None


def _others(types: Types, i: int, wanted: Sequence[Any]) -> Iterator[PartitionSpec]:
    """Other specs of an operand, from small changes to full replication."""
    t = types[i]
    if t.spec is None:
        return
    own = t.spec.dims(t.ndim)
    partial = t.spec.unreduced | t.spec.reduced
    if wanted and partial.isdisjoint([axis for axes in wanted[i] for axis in axes]):
        yield t.spec.update(partitions=wanted[i])
    if t.spec.unreduced:
        yield t.spec.update(unreduced=NO_AXES)
    for reduced in {u.spec.reduced for u in types if u.spec is not None} - {t.spec.reduced}:
        if not reduced & {*t.spec.axes, *t.spec.unreduced}:
            yield t.spec.update(reduced=reduced)
    for d, axes in enumerate(own):
        if axes:
            yield t.spec.update(partitions=[*own[:d], (), *own[d + 1 :]])
    yield REPLICATED.update(partitions=[()] * t.ndim)


def _reshard(
    op: Op, types: Types, found: tuple[int, PartitionSpec] | None, call: Called | None
) -> str:
    """The code for the change: names the argument of the called function, if it is one."""
    split = _split_arguments(call)
    if found is not None:
        i, spec = found
        if call is None:
            return _text("x", spec) + (f" on operand {i}" if len(types) > 1 else "")
        name = _argument(types, i, split)
        if name and (op.pointwise or op.contraction or len(split) == 1):
            return _text(name, spec)
    return _whole(split, "arguments" if call else "operands")


def _whole(split: dict[str, ArrayType], what: str) -> str:
    if len(split) == 1:
        return _text(next(iter(split)), REPLICATED)
    return f"{_text('x', REPLICATED)} on all {what}"


def _split_arguments(call: Called | None) -> dict[str, ArrayType]:
    leaves = call.leaves if call is not None else {}
    found = {n: getattr(x, "aval", None) for n, x in leaves.items()}
    return {n: t for n, t in found.items() if isinstance(t, ArrayType) and t.spec is not None}


def _argument(types: Types, i: int, split: dict[str, ArrayType]) -> str:
    """The argument corresponding to operand `i`; '' if operands are not the arguments."""
    forms = [(t.shape, t.spec) for t in types]
    if any((t.shape, t.spec) not in forms for t in split.values()):
        return ""
    alike = [k for k, form in enumerate(forms) if form == forms[i]]
    names = [n for n, t in split.items() if (t.shape, t.spec) == forms[i]]
    return names[alike.index(i)] if len(names) == len(alike) else ""


def gathered(name: str, t: ArrayType, d: int) -> str:
    """Code that replicates dimension `d` of a value of type `t`.

    name: of the value in the user's code at the call. If a library function is the caller, this is
    one of that function's arguments.
    """
    call = called()
    if call is not None:
        return _whole(_split_arguments(call), "arguments")
    assert t.spec is not None
    own = t.spec.dims(t.ndim)
    return _text(name, t.spec.update(partitions=[*own[:d], (), *own[d + 1 :]]))


def _text(name: str, spec: PartitionSpec) -> str:
    parts: list[Any] = list(spec)
    while parts and not parts[-1]:
        parts.pop()
    return f"`shardwise.sharding.reshard({name}, {spec.update(partitions=parts)})`"
