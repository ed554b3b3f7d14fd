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
from shardwise._src.core.program import Atom, Equation, Literal, Program, Var
from shardwise._src.core.program_tools import pruned
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
        shared = math.prod([x.shape[d] for d in contracted])
        return Counter({("product", _wider(x, y)): FMA * _size(outs[0]) * shared})
    if op is conv_general_dilated:
        kernel, features = eqn.invars[1].aval, eqn.params["dimension_numbers"].rhs_spec[0]
        each = _size(kernel) // max(kernel.shape[features], 1)
        return Counter({("product", kernel.dtype): FMA * _size(outs[0]) * each})
    if op in REDUCTIONS:
        return Counter(reductions=_size(eqn.invars[0].aval))
    if op is ew.integer_pow:
        y = abs(eqn.params["y"])
        times = 0 if eqn.params["y"] in (0, 1) else y.bit_length() - 1 + y.bit_count()
        return Counter(elementwise=(times + (eqn.params["y"] < 0)) * _size(outs[0]))
    moves = op.elements in (Elements.MOVED, Elements.KNOWN) or op is convert_element_type
    if not op.pointwise or moves or not (is_inexact(outs[0].dtype) or outs[0].shape):
        return Counter()
    kind = "transcendentals" if op in TRANSCENDENTAL else "elementwise"
    return Counter({kind: _size(outs[0])})


def _size(t: ArrayType) -> int:
    return math.prod(t.shape)


def _bytes(t: ArrayType) -> int:
    return _size(t) * t.dtype.itemsize


def _wider(x: ArrayType, y: ArrayType) -> np.dtype:
    return x.dtype if x.dtype.itemsize >= y.dtype.itemsize else y.dtype


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
        env: dict[Var, Any] = dict(zip(program.inputs, [*program.consts, *args], strict=True))
        work: Work = Counter()
        self.parts.append((work, count))
        for eqn in program.eqns:
            ins = [_read(env, a) for a in eqn.invars]
            outs = self._equation(eqn, ins, work, count)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [_read(env, a) for a in program.outvars]

    def _equation(self, eqn: Equation, ins: list[Any], work: Work, count: Any) -> Sequence[Any]:
        unknown = [None] * len(eqn.outvars)
        if eqn.op.cost is not None:
            self.stated.append((eqn, count))
        elif eqn.op is cond:
            return self._branches(eqn, ins, count)
        elif eqn.op is scan:
            own = ScanParams(**eqn.params)
            consts, carry, xs = own.parts(ins)
            inside = [*consts, *map(_origin, carry), *[None] * len(xs)]
            self.add(own.body, inside, _product(count, own.length))
            return [*map(_origin, carry), *unknown[len(carry) :]]
        elif eqn.op is while_op:
            return self._loop(WhileParams(**eqn.params), ins, count)
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
        known = not any(x is None or isinstance(x, Origin) for x in ins)
        small = all(_size(a.aval) <= SMALL for a in eqn.invars)
        if known and small and not eqn.op.effects and all(_size(v.aval) == 1 for v in eqn.outvars):
            found = eqn.op(*ins, **eqn.params)
            return found if eqn.op.multiple else [found]
        return [None] * len(eqn.outvars)

    def _access(self, eqn: Equation, ref: Origin, out: ArrayType, work: Work) -> Sequence[Any]:
        """Loads and stores; other ops on a version read it, or write another one of its type."""
        others = [a.aval for a in eqn.invars[1:]]
        stores = eqn.op is kernel_store or (eqn.op is not kernel_load and out == eqn.invars[0].aval)
        moved = max([_bytes(t) for t in others], default=0) if stores else _bytes(out)
        if eqn.op is kernel_store:
            moved = _bytes(others[0])
        work["written" if stores else "read", ref.number] += moved
        self.largest[ref.number] = max(self.largest[ref.number], moved)
        return [ref if stores else None]

    def _branches(self, eqn: Equation, ins: list[Any], count: Any) -> Sequence[Any]:
        which, *args = ins
        branches = eqn.params["branches"]
        known = which is not None and not isinstance(which, Origin)
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

    def _loop(self, own: WhileParams, ins: list[Any], count: Any) -> Sequence[Any]:
        _, consts, carry = own.parts(ins)
        iterations = _iterations(own, ins, count)
        self.is_exact = self.is_exact and iterations is not None
        often = count if iterations is None else _product(count, iterations)
        self.add(own.body, [*consts, *map(_origin, carry)], often)
        return [*map(_origin, carry)]


def _product(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return ew.mul(*[np.int32(x) if isinstance(x, int) else x for x in (a, b)])


def _origin(x: Any) -> Any:
    return x if isinstance(x, Origin) else None


def _read(env: dict[Var, Any], a: Atom) -> Any:
    return a.value if isinstance(a, Literal) else env[a]


def _iterations(own: WhileParams, ins: Sequence[Any], count: Any) -> Any:
    """How often a loop runs, from the values that decide it; None if some are not known. It does
    not run where `count` is 0: there it may have no end."""
    test_consts, body_consts, carry = own.parts(ins)
    test, body = own.test, own.body
    inputs, tests = body.invars[own.num_body :], test.invars[own.num_test :]
    needed = {d for d, v in enumerate(tests) if v in _used(test)}
    while True:
        part = pruned(body, [body.outvars[d] for d in sorted(needed)])
        more = {d for d, v in enumerate(inputs) if v in _used(part)} | needed
        if more == needed:
            break
        needed = more
    used = _used(part)
    decisive = [
        *[x for x, v in zip(test_consts, test.invars, strict=False) if v in _used(test)],
        *[x for x, v in zip(body_consts, body.invars, strict=False) if v in used],
        *[carry[d] for d in needed],
    ]
    if any(x is None or isinstance(x, Origin) for x in decisive):
        return None
    order = sorted(needed)

    def run(program: Program, consts: Sequence[Any], held: Sequence[Any]) -> list[Any]:
        values = dict(zip(order, held, strict=True))
        full = [*consts, *[values.get(d) for d in range(len(carry))]]
        kept = [i for i, v in enumerate(program.invars) if v in _used(program)]
        inputs = [*program.constvars, *[program.invars[i] for i in kept]]
        return program.replace(inputs=inputs)(*[full[i] for i in kept])

    def goes_on(state: Any) -> Any:
        more = run(test, test_consts, state[1:])[0]
        return more if isinstance(count, int) else ew.bitwise_and(more, ew.gt(count, np.int32(0)))

    iterations, *_ = while_loop(
        goes_on,
        lambda state: (ew.add(state[0], np.int32(1)), *run(part, body_consts, state[1:])),
        (np.int32(0), *[carry[d] for d in order]),
    )
    return iterations


def _used(program: Program) -> set[Atom]:
    return {*program.outvars, *[a for eqn in program.eqns for a in eqn.invars]}


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
    total: Work = Counter(bytes=sum(map(_bytes, types)))
    for work, count in counted.parts:
        total.update(times(work, count))
    for eqn, count in counted.stated:
        if eqn.op.cost is not None:
            costs = eqn.op.cost(eqn.op, [a.aval for a in eqn.invars], eqn.params)
            names = "elementwise", "transcendentals", "bytes"
            total.update(times(Counter(dict(zip(names, costs, strict=True))), count))
    flops = total["elementwise"] + sum([n for name, n in total.items() if name[0] == "product"])
    return CostEstimate(flops, total["transcendentals"], total["bytes"])
