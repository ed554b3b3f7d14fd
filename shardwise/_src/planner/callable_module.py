"""The type-checker view of `shardwise.explain`, a module that can be called like a function.

Type checkers do not support callable modules. They see a class instead, so that its names are
also types: `explain(f)` is an instance, which is called with the arguments of `f`. Nothing executes
this module; see `base.lazy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never, TypeAlias

from shardwise._src.debug import visualize_sharding as terminal
from shardwise._src.explain import assertions, communication, device_axes, fits, report, report_data
from shardwise._src.explain import diff as diff_module
from shardwise._src.explain import machines as of_machines
from shardwise._src.explain import program_report as explain_module
from shardwise._src.planner import autoshard, tree_tables
from shardwise._src.visualize import html


class explain:
    def __init__(
        self,
        f: Callable[..., Any],
        *others: Never,
        machine: str | of_machines.Machine | None = None,
        timeout: float = explain_module.TIMEOUT,
    ) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> report.Report: ...

    explain = staticmethod(explain_module.explain)
    assert_comm = staticmethod(assertions.assert_comm)
    assert_fits = staticmethod(fits.assert_fits)
    diff = staticmethod(diff_module.diff)
    suggest = staticmethod(autoshard.suggest)
    tree = staticmethod(tree_tables.tree)
    collectives = staticmethod(communication.collectives)
    summarize = staticmethod(communication.summarize)
    table = staticmethod(communication.table)
    visualize_array_sharding = staticmethod(terminal.visualize_array_sharding)
    visualize_mesh = staticmethod(terminal.visualize_mesh)
    visualize_sharding = staticmethod(terminal.visualize_sharding)
    array_html = staticmethod(html.array_html)
    mesh_html = staticmethod(html.mesh_html)
    sharding_html = staticmethod(html.sharding_html)
    machines = of_machines.machines
    Buffer: TypeAlias = report_data.Buffer
    Change: TypeAlias = diff_module.Change
    Communication: TypeAlias = report_data.Communication
    Computation: TypeAlias = report_data.Computation
    Difference: TypeAlias = diff_module.Difference
    Group: TypeAlias = autoshard.Group
    Link: TypeAlias = of_machines.Link
    Machine: TypeAlias = of_machines.Machine
    Memory: TypeAlias = report_data.Memory
    Report: TypeAlias = report.Report
    Seconds: TypeAlias = report_data.Seconds
    SubAxis: TypeAlias = device_axes.SubAxis
    Suggestion: TypeAlias = autoshard.Suggestion
    Suggestions: TypeAlias = autoshard.Suggestions
    TreeTable: TypeAlias = tree_tables.TreeTable
