"""`vmap` rules for user-defined primitives."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.rule_tables import NOT_MAPPED as not_mapped
    from shardwise._src.extend.rule_tables import AxisData as AxisData
    from shardwise._src.extend.rule_tables import axis_primitive_batchers as axis_primitive_batchers
    from shardwise._src.extend.rule_tables import bdim_at_front as bdim_at_front
    from shardwise._src.extend.rule_tables import broadcast as broadcast
    from shardwise._src.extend.rule_tables import defbroadcasting as defbroadcasting
    from shardwise._src.extend.rule_tables import defreducer as defreducer
    from shardwise._src.extend.rule_tables import defvectorized as defvectorized
    from shardwise._src.extend.rule_tables import (
        fancy_primitive_batchers as fancy_primitive_batchers,
    )
    from shardwise._src.extend.rule_tables import primitive_batchers as primitive_batchers
    from shardwise._src.maps.vmappables import register_vmappable as register_vmappable
    from shardwise._src.maps.vmappables import unregister_vmappable as unregister_vmappable

lazy_names(__name__)
