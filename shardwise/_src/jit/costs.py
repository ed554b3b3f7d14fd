"""Costs of ops that compilers do not see into, for the cost analysis of programs."""

from __future__ import annotations

from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import walk
from shardwise._src.runtime.platforms import Platform


def with_stated_costs(
    cost: dict[str, float], program: Program, platform: Platform
) -> dict[str, float]:
    """A compiler's estimate for a program, with the costs that ops state themselves: of kernels,
    which are custom calls on GPUs and TPUs. Those in loops count once, as in XLA's estimates."""
    if platform.is_xla_cpu:  # it runs them as programs, which XLA counts
        return cost
    found = dict(cost)
    for eqn in walk(program):
        if eqn.op.cost is not None:
            costs = eqn.op.cost(eqn.op, [a.aval for a in eqn.invars], eqn.params)
            for name, n in zip(("flops", "transcendentals", "bytes accessed"), costs, strict=True):
                found[name] = max(found.get(name, 0.0), 0.0) + n  # -1 is XLA's for unknown calls
    return found
