"""Reports of launches of kernels: what they move, compute and need, and what bounds them.

    print(report(f, machine="tpu-v5e")(x, y))    # of each launch of f
    report(f)(x, y)[0].bytes                     # a number

The work is counted from the programs of a launch (kernels/launch_work.py); nothing is compiled for
the machine, and nothing runs but what the indices of blocks depend on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardwise._src.base.lazy import public
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import inlined, pruned, walk
from shardwise._src.explain.dtype_emulation import hlo_text
from shardwise._src.explain.launches.launch_data import LaunchData
from shardwise._src.explain.machines import Machine, chosen, machine_of
from shardwise._src.explain.rendering.report_phrases import launch_section
from shardwise._src.explain.rendering.report_text import section_text
from shardwise._src.explain.work import CallWork
from shardwise._src.jit.jit import jit
from shardwise._src.jit.stages import Wrapped
from shardwise._src.kernels.accesses import new_memory
from shardwise._src.kernels.independent_axes import independent_axes
from shardwise._src.kernels.launch_record import CostEstimate, Launch
from shardwise._src.kernels.launch_work import LaunchWork, launch_work
from shardwise._src.kernels.on_tpu.mosaic_limits import memory_rows
from shardwise._src.kernels.program_work import counted_program, program_cost, used_operands
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.messages.formatting import in_bytes, pluralize, short_repr
from shardwise._src.messages.source import line_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.runtime.pytree import flatten
from shardwise._src.targets.gpus import GPUS
from shardwise._src.targets.tpus import TPUS
from shardwise._src.transfers.transfer import default_place
from shardwise._src.transforms.tracer import Tracer

REREAD = 4  # how often a block is moved, on average, before there is advice


@public("shardwise.kernels")
@dataclass(frozen=True)
class LaunchReport(LaunchData):
    """What one launch of a kernel does: see the fields. `print` shows it as a table."""

    def __str__(self) -> str:
        return section_text(launch_section(self))


class LaunchReports(tuple[LaunchReport, ...]):
    """The reports of the launches of a function, in the order of its program."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def report(
    f: Callable[..., Any], *, machine: str | Machine | None = None
) -> Callable[..., LaunchReports]:
    """A function that reports the launches of kernels in `f`, for given arguments.

    Args:
      f: a function that launches kernels, such as a result of `kernels.call`.
      machine: the name of one of `explain.machines`, or a `Machine`; by default that of the
        default device.

    Returns:
      `(*args, **kwargs) → LaunchReports`: a tuple of `LaunchReport`s. The arguments are arrays, or
      `ShapeDtypeStruct`s; then what depends on sizes of the grid or prefetched arrays is not known,
      and the report says so.

    Raises:
      TypeError: if `f` is not a function; ValueError: for an unknown machine, or if the function
        launches no kernel. Any error of the function while it is traced.
    """
    if not callable(f):
        raise TypeError(
            f"kernels.report takes a function, and its arguments in a second call: "
            f"`report(f)(x)`. Got {short_repr(f)}."
        )
    asked = chosen(machine).machine

    @functools.wraps(f)
    @hides_frames
    def reported(*args: Any, **kwargs: Any) -> LaunchReports:
        traced = (f if isinstance(f, Wrapped) else jit(f)).trace(*args, **kwargs)
        values = flatten((args, kwargs))[0]
        rates = asked or machine_of(None, default_place().devices[0])
        found = reports_of(traced.program, rates, values)
        if not found:
            raise ValueError(f"kernels.report: {traced.program.name} launches no kernel.")
        return found

    return reported


def reports_of(
    program: Program, machine: Machine, values: Sequence[Any] | None = None
) -> LaunchReports:
    """Reports of the launches of a program. values: its arguments, if known."""
    if values is None or len(values) != len(program.invars):
        values = [v.aval for v in program.invars]
    if not any(map(is_launch, walk(program))):
        return LaunchReports()
    program = inlined(program, lambda eqn: eqn.called)
    found = [(eqn, n) for eqn, n in counted_program(program).stated if n and is_launch(eqn)]
    rows = [(eqn, _work_of(eqn, _known_operands(program, eqn, values)), n) for eqn, n in found]
    return LaunchReports([_report(eqn, work, machine, n) for eqn, work, n in rows])


def is_launch(eqn: Equation) -> bool:
    return eqn.op.cost is not None and isinstance(eqn.params.get("launch"), Launch)


def _work_of(eqn: Equation, operands: Sequence[Any]) -> LaunchWork:
    p = eqn.params
    return launch_work(p["body"], p["maps"], p["launch"], operands)


def call_work(eqn: Equation, machine: Machine) -> CallWork:
    """The work of a launch, for the report of a program whose compiler does not know it."""
    found = _report(eqn, _work_of(eqn, [a.aval for a in eqn.invars]), machine, 1)
    return CallWork(found.flops, found.elementwise, found.bytes)


def _known_operands(program: Program, eqn: Equation, values: Sequence[Any]) -> list[Any]:
    """The operands of a launch: the values of those that decide about its blocks, if they depend on
    known arguments only; types for the others."""
    launch, types = eqn.params["launch"], [a.aval for a in eqn.invars]
    count = launch.dynamic + launch.prefetch
    if not count or eqn not in program.eqns:
        return types
    part = pruned(program, eqn.invars[:count])
    needed = [values[i] for i in used_operands(part)]
    if not all(hasattr(x, "__array__") or isinstance(x, int) for x in needed):
        return types
    if any(isinstance(x, Tracer) for x in needed):
        return types
    with eval_context():
        return [*part(*values), *types[count:]]


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The operations, transcendental functions, and bytes of arguments and results of a function.

    Reductions are not counted, as in JAX, which has this function for the `cost` of kernels.

    args: arrays, or `ShapeDtypeStruct`s. kwargs: further arguments, which are not traced.
    """
    return program_cost(jit(functools.partial(fun, **kwargs)).trace(*args).program)


# -- one launch on a machine --


class _Chip(NamedTuple):
    """What is known of the cores of a machine. memory: what its fast memory is called."""

    cores: int
    limit: int
    memory: str
    is_gpu: bool = False
    is_tpu: bool = False


def _chip(machine: Machine) -> _Chip:
    name = machine.name.partition(":")[0]
    if name in GPUS:
        gpu = GPUS[name]
        return _Chip(gpu.cores, gpu.kernel_memory, "registers and shared memory", True)
    if name in TPUS:
        return _Chip(1, TPUS[name].scoped_vmem, "VMEM", is_tpu=True)
    return _Chip(1, 0, "fast memory")


def _report(eqn: Equation, work: LaunchWork, machine: Machine, count: int) -> LaunchReport:
    chip, launch = _chip(machine), eqn.params["launch"]
    if chip.is_gpu and launch.cost is None:  # its programs read what they access
        operands = tuple([replace(o, bytes=o.accessed) for o in work.operands])
        work = replace(work, operands=operands, bytes=sum([o.bytes for o in operands]))
    if launch.params.vmem_limit_bytes and chip.is_tpu:
        chip = chip._replace(limit=launch.params.vmem_limit_bytes)
    free = [True] * len(work.grid)  # axes whose programs may run at the same time
    if chip.is_gpu:  # others are loops in each program
        free = independent_axes(launch, eqn.params["body"], eqn.params["maps"])
    programs = math.prod([n for n, p in zip(work.grid.values(), free, strict=True) if p or not n])
    share = min(programs / chip.cores, 1.0) or 1.0
    rates = [(machine.flop_rate(hlo_text(dtype)), n) for dtype, n in work.flops.items()]
    compute = sum([n / rate for rate, n in rates]) / share
    memory = work.bytes / machine.memory_bandwidth / share
    bound = "programs" if share < 1 else "compute" if compute > memory else "memory"
    on_chip = 0
    try:
        on_chip = _on_chip(eqn, work, chip)
    except NotImplementedError as error:
        work = replace(work, notes=(*work.notes, str(error)))
    return LaunchReport(
        **vars(work), machine=machine, count=count, on_chip=on_chip, limit=chip.limit,
        cores=chip.cores, compute=compute, memory=memory, bound=bound,
        advice=_advice(work, programs, chip, on_chip, bound, machine.name),
        line="" if eqn.site is None else "{}:{}".format(*line_of(eqn.site)),
    )  # fmt: skip


def _on_chip(eqn: Equation, work: LaunchWork, chip: _Chip) -> int:
    """Bytes of fast memory of a program: on TPUs what Mosaic allocates, otherwise scratch memory
    and on GPUs the largest accesses, on CPUs the blocks.

    Raises NotImplementedError for dtypes that TPUs lack.
    """
    launch = eqn.params["launch"]
    if chip.is_tpu:
        memory = [e for e in walk(eqn.params["body"]) if e.op is new_memory]
        scoped = [e.outvars[0].aval for e in memory if e.params["space"] == VMEM.name]
        held = [VMEM(t.shape, t.dtype) for t in scoped]
        return sum([n for n, _ in memory_rows(launch, held, VMEM.name)])
    scratch = sum([math.prod(s.shape) * s.type.dtype.itemsize for s in launch.scratch])
    if chip.is_gpu:
        return scratch + sum([o.largest for o in work.operands])
    blocks = [o for o in work.operands if o.is_moved]
    return scratch + sum([math.prod([n or 1 for n in o.block]) * o.itemsize for o in blocks])


def _advice(
    work: LaunchWork, programs: int, chip: _Chip, on_chip: int, bound: str, name: str
) -> str:
    """The worst problem; "" if none is found."""
    if not work.programs:
        return "The grid has no programs, so that results are not written. Use smaller blocks."
    if 0 < chip.limit < on_chip:
        buffers = ", with two buffers for each block" * (chip.is_tpu and work.programs > 1)
        return (
            f"A program needs {in_bytes(on_chip)} of {chip.memory}{buffers}; {name!r} has "
            f"{in_bytes(chip.limit)}. Use smaller blocks."
        )
    if bound == "programs":
        idle = f"for {chip.cores} cores: the others are idle. Use smaller blocks"
        if programs == work.programs:
            return f"{pluralize(programs, 'program')} {idle}."
        return (
            f"{pluralize(programs, 'program')} along the independent axes of the grid {idle}, or "
            "declare as `parallel` more axes whose programs may run in any order."
        )
    worst = max(work.operands, key=lambda o: o.outside, default=None)
    if worst is not None and worst.outside >= 0.25:
        return (
            f"{worst.outside:.0%} of the elements in the blocks of {worst.what} are beyond the end "
            f"of {worst.type}. Use blocks whose sizes divide its own."
        )
    most = max(work.operands, key=lambda o: o.bytes, default=None)
    if bound == "memory" and most is not None and most.moved >= REREAD * max(most.blocks, 1):
        times = most.moved / most.blocks
        return (
            f"Each block of {most.what} is moved {times:.3g} times. Use larger blocks along the "
            "axes of the grid that it does not depend on, or make these the last axes."
        )
    return ""
