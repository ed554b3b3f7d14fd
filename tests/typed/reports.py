"""Static types of `shardwise.explain`, a callable module; nothing runs this."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import Array, explain
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

x = jnp.ones(3)


def loss(w: Array, scale: float = 1.0) -> Array:
    return jnp.sum(w) * scale


def largest(report: explain.Report) -> sw.explain.Communication:
    return report.communication[0]


report = sw.explain(loss, machine="h200")(x, scale=2.0)
assert_type(report, explain.Report)
assert_type(explain(sw.jit(loss))(x), explain.Report)
assert_type(explain.explain(loss)(x), explain.Report)
assert_type(sw.explain.diff(report, report), explain.Difference)
assert_type(sw.explain.assert_comm(loss, all_gather=0, bytes="<4MiB")(x), explain.Report)
assert_type(sw.explain.tree({"w": x}), explain.TreeTable)
sw.explain(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sw.explain(loss, "h200")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sw.explain(loss, machin="h200")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def planned(mesh: Mesh) -> int:
    for found in sw.explain.suggest(loss, (x,), mesh, keep=2):
        largest(found.report)
    return sw.plan({"w": x}, NamedSharding(mesh, P("x"))).bytes_moved
