"""Lower bounds for a program: operations, memory traffic, bytes sent between devices."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.planner.roofline import RooflineResult as RooflineResult
    from shardwise._src.planner.roofline import RooflineRuleContext as RooflineRuleContext
    from shardwise._src.planner.roofline import RooflineShape as RooflineShape
    from shardwise._src.planner.roofline import register_roofline as register_roofline
    from shardwise._src.planner.roofline import (
        register_standard_roofline as register_standard_roofline,
    )
    from shardwise._src.planner.roofline import roofline as roofline
    from shardwise._src.planner.roofline import roofline_and_grad as roofline_and_grad

lazy_names(__name__)
