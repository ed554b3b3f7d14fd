"""Logical axes: functions name their dimensions; one table of rules maps the names to mesh axes.

For example:

    Stream = Annotated[Array, "batch seq embed"]

    @named.checked
    def mlp(x: Stream, up: Annotated[Array, "embed mlp"], down: Annotated[Array, "mlp embed"]) -> Stream:
        return einsum("batch seq mlp, mlp embed -> batch seq embed", nn.gelu(
            einsum("batch seq embed, embed mlp -> batch seq mlp", x, up)), down)

    with named.rules({"batch": "data", "mlp": "model", "seq": None, "embed": None}, mesh):
        ...
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.named.algebra import einsum as einsum
    from shardwise._src.named.algebra import rearrange as rearrange
    from shardwise._src.named.algebra import reduce as reduce
    from shardwise._src.named.algebra import rename as rename
    from shardwise._src.named.axes_check import check as check
    from shardwise._src.named.declarations import axes as axes
    from shardwise._src.named.declarations import checked as checked
    from shardwise._src.named.declarations import vmap as vmap
    from shardwise._src.named.logical_axis_rules import rules as rules
    from shardwise._src.named.logical_axis_rules import stored as stored
    from shardwise._src.named.named_trees import like as like
    from shardwise._src.named.named_trees import parameters as parameters
    from shardwise._src.named.named_trees import shapes as shapes
    from shardwise._src.named.named_trees import shardings as shardings

lazy_names(__name__)
