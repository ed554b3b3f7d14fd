"""Human-readable reports of what a program does and how its arrays are sharded.

`shardwise.explain(f)(*args)` is `shardwise.explain.explain(f)(*args)`: a `Report` on a function,
made before it runs.

Visualizations for terminals need `rich`, which is slow to import: their names are available here,
but loaded on first use.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.visualize_sharding import (
        visualize_array_sharding as visualize_array_sharding,
    )
    from shardwise._src.debug.visualize_sharding import visualize_mesh as visualize_mesh
    from shardwise._src.debug.visualize_sharding import visualize_sharding as visualize_sharding
    from shardwise._src.explain.assertions import assert_comm as assert_comm
    from shardwise._src.explain.communication import collectives as collectives
    from shardwise._src.explain.communication import summarize as summarize
    from shardwise._src.explain.communication import table as table
    from shardwise._src.explain.device_axes import SubAxis as SubAxis
    from shardwise._src.explain.diff import Change as Change
    from shardwise._src.explain.diff import Difference as Difference
    from shardwise._src.explain.diff import diff as diff
    from shardwise._src.explain.fits import assert_fits as assert_fits
    from shardwise._src.explain.machines import Link as Link
    from shardwise._src.explain.machines import Machine as Machine
    from shardwise._src.explain.machines import machines as machines
    from shardwise._src.explain.program_report import explain as explain
    from shardwise._src.explain.report import Report as Report
    from shardwise._src.explain.report_data import Buffer as Buffer
    from shardwise._src.explain.report_data import Communication as Communication
    from shardwise._src.explain.report_data import Computation as Computation
    from shardwise._src.explain.report_data import Memory as Memory
    from shardwise._src.explain.report_data import Seconds as Seconds
    from shardwise._src.planner.autoshard import Group as Group
    from shardwise._src.planner.autoshard import Suggestion as Suggestion
    from shardwise._src.planner.autoshard import Suggestions as Suggestions
    from shardwise._src.planner.autoshard import suggest as suggest
    from shardwise._src.planner.tree_tables import TreeTable as TreeTable
    from shardwise._src.planner.tree_tables import tree as tree
    from shardwise._src.visualize.html import array_html as array_html
    from shardwise._src.visualize.html import mesh_html as mesh_html
    from shardwise._src.visualize.html import sharding_html as sharding_html

lazy_names(__name__)
