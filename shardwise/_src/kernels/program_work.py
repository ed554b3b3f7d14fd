"""The work of programs: their operations, and what kernels read and write.

    for work, count in counted_program(program).parts:
        count * work["elementwise"], count * work["transcendentals"], count * work["product", dtype]

Nothing is compiled. Products, convolutions and reductions are counted by their shapes, with two
operations per multiply-add, other arithmetic as one operation per element. Arithmetic of single
integers and booleans is that of addresses and conditions, and does not count.

`CountedWork` follows control flow: scans count as often as their length; a branch or a loop counts
for the programs of a grid that run it, and as often, if what decides that depends on the indices of
the programs only. Otherwise all branches count, and a loop counts once: then `is_exact` is False.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_api import while_loop
from shardwise._src.control.while_loop import while_loop as while_op
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.op import Elements
from shardwise._src.core.program import Equation, Program, eval_program
from shardwise._src.core.program_tools import pruned, used
from shardwise._src.kernels.accesses import INT32, kernel_load, kernel_store
from shardwise._src.kernels.launch_record import CostEstimate
from shardwise._src.ops import cumulative, reduce
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.convolution import conv_general_dilated
from shardwise._src.ops.special import special_functions as special
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact

Work = Counter[Any]  # "elementwise", "reductions", …, ("product", dtype), ("read", argument)
FMA = 2  # operations per multiply-add
SMALL = 2**16  # elements of arrays whose elements are known
TRANSCENDENTAL = {
    *(ew.exp, ew.exp2, ew.expm1, ew.log, ew.log1p, ew.logistic, ew.pow, ew.sqrt, ew.rsqrt, ew.cbrt),
    *(ew.sin, ew.cos, ew.tan, ew.asin, ew.acos, ew.atan, ew.atan2, ew.sinh, ew.cosh, ew.tanh),
    *(ew.asinh, ew.acosh, ew.atanh, special.erf, special.erfc, special.erf_inv, special.lgamma),
    *(special.digamma, special.logaddexp),
}
REDUCTIONS = {
    *(reduce_sum, reduce.reduce_max, reduce.reduce_min, reduce.reduce_prod, reduce.argmax),
    *(reduce.argmin, cumulative.cumsum, cumulative.cumprod, cumulative.cummax, cumulative.cummin),
}


class Origin(NamedTuple):
    """In place of a value: a version of the ref that has this number among a kernel's blocks."""

    number: int


def equation_work(eqn: Equation) -> Work:
    """The work of one equation without programs."""
    op, outs = eqn.op, [v.aval for v in eqn.outvars]
    if op is dot_general:
        x, y = [a.aval for a in eqn.invars]
        (contracted, _), _ = eqn.params["dimension_numbers"]
        wider = max(x.dtype, y.dtype, key=lambda dtype: dtype.itemsize)
        shared = math.prod([x.shape[d] for d in contracted])
        return Counter({("product", wider): FMA * outs[0].size * shared})
    if op is conv_general_dilated:
        kernel, features = eqn.invars[1].aval, eqn.params["dimension_numbers"].rhs_spec[0]
        each = kernel.size // max(kernel.shape[features], 1)
        return Counter({("product", kernel.dtype): FMA * outs[0].size * each})
    if op in REDUCTIONS:
        return Counter(reductions=eqn.invars[0].aval.size)
    if op is ew.integer_pow:
        y = abs(eqn.params["y"])
        times = 0 if eqn.params["y"] in (0, 1) else y.bit_length() - 1 + y.bit_count()
        return Counter(elementwise=(times + (eqn.params["y"] < 0)) * outs[0].size)
    moves = op.elements in (Elements.MOVED, Elements.KNOWN) or op is convert_element_type
    if not op.pointwise or moves or not (is_inexact(outs[0].dtype) or outs[0].shape):
        return Counter()
    kind = "transcendentals" if op in TRANSCENDENTAL else "elementwise"
    return Counter({kind: outs[0].size})


def times(work: Work, count: int) -> Work:
    return Counter({name: count * n for name, n in work.items()})


class CountedWork:
    """The work of a program, in parts that run equally often.

    parts:    pairs of work, and how often it runs: an integer, or a traced one.
    largest:  the most bytes that one access reads or writes, by the number of the ref.
    stated:   pairs of an equation whose op states its cost, which the parts do not contain, and how
              often it runs.
    is_exact: whether it is known how often all of them run.
    """

    def __init__(self) -> None:
        self.stated: list[tuple[Equation, Any]] = []
        self.parts: list[tuple[Work, Any]] = []
        self.largest: Counter[int] = Counter()
        self.is_exact = True

    def add(self, program: Program, args: Sequence[Any], count: Any = 1) -> list[Any]:
        """Adds a program that runs `count` times; returns what is known of its results.

        args: for each operand a value, an `Origin`, or None for a value that is not known.
        """
        work: Work = Counter()
        self.parts.append((work, count))
        return eval_program(program, args, lambda eqn, ins: self._equation(eqn, ins, work, count))

    def _equation(self, eqn: Equation, ins: list[Any], work: Work, count: Any) -> Sequence[Any]:
        unknown = [None] * len(eqn.outvars)
        if eqn.op.cost is not None:
            self.stated.append((eqn, count))
        elif eqn.op is cond:
            return self._branches(eqn, ins, count)
        elif eqn.op is scan:
            own = ScanParams(**eqn.params)
            return self._loop(own.body, own.parts(ins), count, own.length)
        elif eqn.op is while_op:
            own = WhileParams(**eqn.params)
            _, consts, carry = own.parts(ins)
            return self._loop(own.body, (consts, carry, ()), count, _iterations(own, ins, count))
        elif eqn.op.programs:
            (first, *_) = eqn.programs()
            if len(first.invars) == len(ins) and len(first.outvars) == len(unknown):
                return self.add(first, ins, count)
            self.is_exact = False
        else:
            return self._plain(eqn, ins, work)
        return unknown

    def _plain(self, eqn: Equation, ins: list[Any], work: Work) -> Sequence[Any]:
        out = eqn.outvars[0].aval if eqn.outvars else None
        if out is not None and ins and isinstance(ins[0], Origin):
            return self._access(eqn, ins[0], out, work)
        work.update(equation_work(eqn))
        small = all(map(_is_known, ins)) and all(a.aval.size <= SMALL for a in eqn.invars)
        if small and not eqn.op.effects and all(v.aval.size == 1 for v in eqn.outvars):
            found = eqn.op(*ins, **eqn.params)
            return found if eqn.op.multiple else [found]
        return [None] * len(eqn.outvars)

    def _access(self, eqn: Equation, ref: Origin, out: ArrayType, work: Work) -> Sequence[Any]:
        """Loads and stores; other ops on a version read it, or write another one of its type."""
        others = [a.aval for a in eqn.invars[1:]]
        stores = eqn.op is kernel_store or (eqn.op is not kernel_load and out == eqn.invars[0].aval)
        moved = max([t.nbytes for t in others], default=0) if stores else out.nbytes
        if eqn.op is kernel_store:
            moved = others[0].nbytes
        work["written" if stores else "read", ref.number] += moved
        self.largest[ref.number] = max(self.largest[ref.number], moved)
        return [ref if stores else None]

    def _branches(self, eqn: Equation, ins: list[Any], count: Any) -> Sequence[Any]:
        which, *args = ins
        branches = eqn.params["branches"]
        known = _is_known(which)
        self.is_exact = self.is_exact and known
        found = []
        for number, branch in enumerate(branches):
            often, is_last = count, number == len(branches) - 1
            if known:  # the last branch is also that of larger indices
                compared = ew.ge if is_last and number > 1 else ew.eq
                runs = compared(which, eqn.invars[0].aval.dtype.type(number))
                often = _product(count, convert_element_type(runs, dtype=INT32, weak=False))
            found.append(self.add(branch, args, often))
        same = zip(*[map(_origin, outs) for outs in found], strict=True)
        return [column[0] if len(set(column)) == 1 else None for column in same]

    def _loop(self, body: Program, parts: Any, count: Any, iterations: Any) -> Sequence[Any]:
        """parts: the constants, the carry and the xs. iterations: None if not known."""
        consts, carry, xs = parts
        self.is_exact = self.is_exact and iterations is not None
        often = count if iterations is None else _product(count, iterations)
        held = [*map(_origin, carry)]
        self.add(body, [*consts, *held, *[None] * len(xs)], often)
        return held + [None] * (len(body.outvars) - len(held))


def _product(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return ew.mul(*[np.int32(x) if isinstance(x, int) else x for x in (a, b)])


def _is_known(x: Any) -> bool:
    return x is not None and not isinstance(x, Origin)


def _origin(x: Any) -> Any:
    return x if isinstance(x, Origin) else None


def _iterations(own: WhileParams, ins: Sequence[Any], count: Any) -> Any:
    """How often a loop runs, from the values that decide it; None if some are not known. It does
    not run where `count` is 0: there it may have no end."""
    tests, consts, carry = own.parts(ins)
    test, body = own.test, pruned(own.body, [])
    decisive, more = set[int](), used_operands(test, own.num_test)
    while decisive != more:  # positions in the carry
        decisive = more
        body = pruned(own.body, [v for d, v in enumerate(own.body.outvars) if d in decisive])
        more = decisive | used_operands(body, own.num_body)
    operands = [(test, [*tests, *carry]), (body, [*consts, *carry])]
    if not all(_is_known(xs[i]) for program, xs in operands for i in used_operands(program)):
        return None

    def goes_on(state: Any) -> Any:
        (more,) = test(*tests, *state[1:])
        return more if isinstance(count, int) else ew.bitwise_and(more, ew.gt(count, np.int32(0)))

    def step(state: Any) -> Any:
        found = iter(body(*consts, *state[1:]))
        after = [next(found) if d in decisive else None for d in range(len(carry))]
        return ew.add(state[0], np.int32(1)), *after

    held = [x if d in decisive else None for d, x in enumerate(carry)]
    return while_loop(goes_on, step, (np.int32(0), *held))[0]


def used_operands(program: Program, first: int = 0) -> set[int]:
    """Which operands it uses, counted from one of them on."""
    atoms = used(program)
    return {d for d, v in enumerate(program.invars[first:]) if v in atoms}


def counted_program(program: Program) -> CountedWork:
    """The work of a program that runs once, for any arguments; all counts are integers."""
    counted = CountedWork()
    with eval_context():
        counted.add(program, [None] * len(program.invars))
        counted.parts = [(work, int(np.asarray(n))) for work, n in counted.parts]
        counted.stated = [(eqn, int(np.asarray(n))) for eqn, n in counted.stated]
    return counted


def program_cost(program: Program) -> CostEstimate:
    """The cost of a program: operations without reductions, as JAX counts them, and the bytes of
    arguments and results; of launches of kernels all that they move."""
    counted = counted_program(program)
    types = [*[v.aval for v in program.invars], *[a.aval for a in program.outvars]]
    total: Work = Counter(bytes=sum([t.nbytes for t in types]))
    for work, count in counted.parts:
        total.update(times(work, count))
    for eqn, count in counted.stated:
        if eqn.op.cost is not None:
            costs = eqn.op.cost(eqn.op, [a.aval for a in eqn.invars], eqn.params)
            names = "elementwise", "transcendentals", "bytes"
            total.update(times(Counter(dict(zip(names, costs, strict=True))), count))
    flops = total["elementwise"] + sum([n for name, n in total.items() if name[0] == "product"])
    return CostEstimate(flops, total["transcendentals"], total["bytes"])
