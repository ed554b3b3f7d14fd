"""Refs in a `shard_map`: each device has a shard of their values, and returns its last value.

A ref among the arguments is sharded by its spec; inside it is a ref of the shard. A captured ref is
replicated, and must be the same on all devices at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from shardwise._src.core.program import Program
from shardwise._src.refs.passing import functional, lent
from shardwise._src.refs.refs import Ref, is_ref, values_of, write_back
from shardwise._src.types.partition_spec import PartitionSpec

Specs = Sequence[PartitionSpec]


def with_refs(
    run: Callable[..., list[Any]], what: str, flat: Callable[..., list[Any]], values: Sequence[Any],
    names: Sequence[str], specs: Specs, put_together: Callable[[Program], Specs],
    closed: Sequence[Ref], check: Callable[[str, Any, PartitionSpec], None],
) -> list[Any]:
    """The results of `run(flat, values, names, specs, put_together)`, with refs among the values.

    closed: refs that `flat` captures.
    check:  raises if the spec of a last value (name, type) does not allow combining its shards.
    """
    at = [i for i, x in enumerate(values) if is_ref(x)]
    passed = [values[i] for i in at]
    count = len(values)
    every = [*names, *[f"{ref.short} from outside" for ref in closed]]
    divided = [*specs, *[PartitionSpec()] * len(closed)]
    last = [*at, *range(count, count + len(closed))]  # where refs are, in `every` and `divided`
    sizes: list[int] = []

    inside = functional(flat, what, at, closed)

    def pure(*parts: Any) -> list[Any]:
        outs, finals = inside(*parts[:count], parts[count:])
        sizes.append(len(outs))
        return [*outs, *finals]

    def all_together(program: Program) -> list[PartitionSpec]:
        found = put_together(program.replace(outputs=program.outputs[: sizes[-1]]))
        for i, t in zip(last, program.out_types[sizes[-1] :], strict=True):
            check(every[i], t, divided[i])
        return [*found, *[divided[i] for i in last]]

    lending: Any = nullcontext([])
    if passed:
        lending = lent(passed, what, lambda: [names[i] for i in at])
    with lending as held:
        given = list(values)
        for i, value in zip(at, held, strict=True):
            given[i] = value
        outs = run(pure, [*given, *values_of(closed)], every, divided, all_together)
    write_back([*passed, *closed], outs[sizes[-1] :])
    return outs[: sizes[-1]]
