"""`vmap` rules for user-defined primitives."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.rules import NOT_MAPPED as not_mapped
    from shardwise._src.extend.rules import AxisData as AxisData
    from shardwise._src.extend.rules import axis_primitive_batchers as axis_primitive_batchers
    from shardwise._src.extend.rules import bdim_at_front as bdim_at_front
    from shardwise._src.extend.rules import broadcast as broadcast
    from shardwise._src.extend.rules import defbroadcasting as defbroadcasting
    from shardwise._src.extend.rules import defreducer as defreducer
    from shardwise._src.extend.rules import defvectorized as defvectorized
    from shardwise._src.extend.rules import fancy_primitive_batchers as fancy_primitive_batchers
    from shardwise._src.extend.rules import primitive_batchers as primitive_batchers
    from shardwise._src.extend.rules import register_vmappable as register_vmappable
    from shardwise._src.extend.rules import unregister_vmappable as unregister_vmappable

lazy_names(__name__)
