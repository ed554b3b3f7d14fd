"""The `scan` op: a nested program applied along the leading dimension, with a carried state.

    body:  (constants…, carry…, slices of xs…) → (carry…, ys…)
    scan:  (constants…, carry…, xs…)           → (carry…, stacked ys…)

Each transform builds a scan of a transformed body. When a transform marks values (which tangents
are nonzero, which values are unknown or batched), a mark on an output carry implies one on the
input carry, so these rules iterate until the marks agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.base.marks import given, merge, picked, spread
from shardwise._src.control.call import known_first
from shardwise._src.control.entering_rules import enter_scan, eval_scan
from shardwise._src.control.programs import Extension, ScanParams, fit, parts
from shardwise._src.control.scan_lowering import lower_scan
from shardwise._src.control.scan_split import split_plan, unknown_carries
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import derived, pruned, prunes, used
from shardwise._src.core.remedies import gathered
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.families import add
from shardwise._src.transforms.batch import Axis, MappedAxis, batch_program, to_dim
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.transpose import log, transpose_with_logs
from shardwise._src.types.array_type import ArrayType, in_parens, same_but_weak

Marks = tuple[bool, ...]


def either(a: Sequence[bool], b: Sequence[bool]) -> Marks:
    return tuple([x or y for x, y in zip(a, b, strict=True)])


# -- types --


def stacked_type(aval: ArrayType, length: int) -> ArrayType:
    """The type of `length` values of a type, along a new leading dimension."""
    spec = aval.spec
    if spec is not None:
        spec = spec.update(partitions=(None, *spec))
    return aval.update(shape=(length, *aval.shape), spec=spec)


def sliced_type(aval: ArrayType) -> ArrayType:
    """The type of one slice along the leading dimension."""
    spec = aval.spec
    if spec is not None:
        if spec[0] is not None:
            raise ShardingTypeError(
                f"[scan] cannot iterate over dimension 0 of {aval.str_short(True)}, which is "
                f"sharded over {spec.dims(aval.ndim)[0]}. Use {gathered('xs', aval, 0)}."
            )
        spec = spec.update(partitions=spec[1:])
    return aval.update(shape=aval.shape[1:], spec=spec)


def _type(op: Op, *types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    own = ScanParams(**params)
    body, num_carry, length = own.body, own.num_carry, own.length
    consts, carry, xs = own.parts(types)
    for x in xs:
        if not x.shape or x.shape[0] != length:
            raise TypeError(f"[scan] of length {length} got xs of type {x.str_short(True)}.")
    passed = (*consts, *carry, *map(sliced_type, xs))
    if not same_but_weak(passed, body.in_types):
        raise TypeError(
            f"[scan] the body takes {in_parens(body.in_types)}; got {in_parens(passed)} "
            "(constants, carry, slices of xs)."
        )
    outs = body.out_types
    if not same_but_weak(outs[:num_carry], carry):
        raise TypeError(
            "[scan] the body must return the carry with its input types, "
            f"{in_parens(carry)}; it returns {in_parens(outs[:num_carry])}."
        )
    return (*outs[:num_carry], *[stacked_type(t, length) for t in outs[num_carry:]])


# -- jvp --


@derived
def jvp_body(
    body: Program, num_consts: int, num_carry: int, nonzero: Marks
) -> tuple[Program, Marks, Marks]:
    """The body of values and tangents; which carries and which ys have tangents."""
    consts, carry, xs = parts(nonzero, num_consts, num_carry)
    while True:
        both, marks = jvp_program(body, (*consts, *carry, *xs))
        grown = either(carry, marks[:num_carry])
        if grown == carry:
            break
        carry = grown
    count, results = len(body.invars), len(body.outvars)
    found = spread(both.invars[count:], (*consts, *carry, *xs))
    ins = zip(
        parts(both.invars[:count], num_consts, num_carry),
        parts(found, num_consts, num_carry),
        strict=True,
    )
    outs = spread(both.outvars[results:], marks)
    new = Extension(both.eqns)
    carried = []
    for var, tangent, has in zip(body.invars[num_consts:], outs, carry, strict=False):
        if has:
            aval = var.aval.strong()
            carried.append(new.zeros(aval) if tangent is None else new.fit(tangent, aval))
    inputs = [*both.constvars]
    for values, ts in ins:
        inputs += [*values, *given(ts)]
    outputs = [
        *both.outvars[:num_carry],
        *carried,
        *both.outvars[num_carry:results],
        *given(outs[num_carry:]),
    ]
    program = both.replace(inputs=inputs, outvars=outputs, eqns=new.eqns)
    return program, carry, marks[num_carry:]


def _jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[list, list]:
    own = ScanParams(**params)
    body, num_consts, num_carry = own.body, own.num_consts, own.num_carry
    nonzero = tuple([t is not None for t in tangents])
    both, carry_marks, y_marks = jvp_body(body, num_consts, num_carry, nonzero)
    consts, carry, xs = own.parts(primals)
    const_ts, carry_ts, xs_ts = own.parts(tangents)
    started = [
        zeros(v.aval.strong()) if m and t is None else t
        for v, t, m in zip(body.invars[num_consts:], carry_ts, carry_marks, strict=False)
    ]
    const_ts, started, xs_ts = given(const_ts), given(started), given(xs_ts)
    args = [*consts, *const_ts, *carry, *started, *xs, *xs_ts]
    counts = num_consts + len(const_ts), num_carry + len(started)
    outs = _bind(args, own, both, *counts)
    carry_out, moved, ys = parts(outs, num_carry, len(started))
    moving = spread([*moved, *ys[len(y_marks) :]], (*carry_marks, *y_marks))
    return [*carry_out, *ys[: len(y_marks)]], moving


# -- partial evaluation --


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    """The known part runs now, in a separate scan; the rest is staged, with residuals."""
    unknown = tuple([interpreter.is_unknown(a) for a in args])
    plan = split_plan(params["body"], params["num_consts"], params["num_carry"], unknown)
    known, rest_args, rest = plan.run(interpreter.known, scan, args, params)
    return merge(plan.unknown_out, interpreter.record(scan, tuple(rest_args), rest), known)


# -- transpose --


def _transpose(op: Op, cts: Any, *args: Any, **params: Any) -> list[Any]:
    linear = tuple([is_linear(a) for a in args])
    counts = params["num_consts"], params["num_carry"]
    carry = parts(linear, *counts)[1]
    if not all(carry) and not all(unknown_carries(params["body"], *counts, linear)):
        return _transpose_rest(cts, args, linear, params)
    return _transpose_linear(cts, args, linear, ScanParams(**params))


def _transpose_rest(cts: Any, args: Any, linear: Marks, params: dict) -> list[Any]:
    """With carries that are not linear: these run forwards first."""
    plan = split_plan(params["body"], params["num_consts"], params["num_carry"], linear)

    def now(op: Op, values: Any, p: dict) -> Any:
        return op(*values, **p)

    _, rest_args, rest = plan.run(now, scan, args, params)
    results = _transpose(scan, picked(cts, plan.unknown_out), *rest_args, **rest)
    return spread([results[i] for i in plan.rest_positions], plan.unknown_in)


@derived
def transposed_body(
    body: Program, num_consts: int, num_carry: int, linear: Marks, nonzero: Marks
) -> tuple[Program, Marks, Marks, Marks, Any]:
    """(known constants…, cts of the linear ones…, cts of the carry…, known xs…, cts of ys…) →
    (cts of linear constants…, cts of the carry…, cts of linear xs…, logs…); which of the linear
    constants, of the carries, and of the linear xs have one; and the pytree of logs.
    """
    consts, _, xs = parts(linear, num_consts, num_carry)
    ordered = known_first(body, (*consts, *[True] * num_carry, *xs))
    known_consts, known_xs = consts.count(False), xs.count(False)
    linear_consts = num_consts - known_consts
    carry, ys = nonzero[:num_carry], nonzero[num_carry:]
    while True:
        back, marks, logs = transpose_with_logs(ordered, known_consts + known_xs, (*carry, *ys))
        const_marks, moved, x_marks = parts(marks, linear_consts, num_carry)
        if either(carry, moved) == carry:
            break
        carry = either(carry, moved)
    known = back.invars[: known_consts + known_xs]
    cts = back.invars[known_consts + known_xs :]
    ct_carry, ct_ys = cts[: sum(carry)], cts[sum(carry) :]
    new = Extension(back.eqns)
    results = iter(back.outvars)
    sums = [next(results) for m in const_marks if m]
    grown = [next(results) if m else None for m in moved]
    ct_xs = list(results)
    held = [Var(a.aval.strong()) for a in sums]
    total = [new.fit(new.bind(add, h, a), h.aval) for h, a in zip(held, sums, strict=True)]
    into = iter(ct_carry)
    carried = []
    for ct, m in zip(grown, carry, strict=True):
        if m:
            aval = next(into).aval
            carried.append(new.zeros(aval) if ct is None else new.fit(ct, aval))
    inputs = [
        *back.constvars,
        *known[:known_consts],
        *held,
        *ct_carry,
        *known[known_consts:],
        *ct_ys,
    ]
    outputs = [*total, *carried, *ct_xs]
    program = back.replace(inputs=inputs, outvars=outputs, eqns=new.eqns)
    return program, const_marks, carry, x_marks, logs


def _transpose_linear(cts: Any, args: Any, linear: Marks, own: ScanParams) -> list[Any]:
    nonzero = tuple([ct is not None for ct in cts])
    num_consts, num_carry = own.num_consts, own.num_carry
    back, const_marks, carry_marks, x_marks, logs = transposed_body(
        own.body, num_consts, num_carry, linear, nonzero
    )
    consts, _, xs = own.parts(args)
    known_consts = [a for a in consts if not is_linear(a)]
    known_xs = [a for a in xs if not is_linear(a)]
    state = back.in_types[len(known_consts) :]
    sums = [zeros(t) for t in state[: sum(const_marks)]]
    types = iter(state[sum(const_marks) :])
    carry = []
    for ct, m in zip(cts[:num_carry], carry_marks, strict=True):
        if m:
            aval = next(types)
            carry.append(zeros(aval) if ct is None else ct)
    backwards = own._replace(reverse=not own.reverse)
    args = [*known_consts, *sums, *carry, *known_xs, *given(cts[num_carry:])]
    outs = iter(_bind(args, backwards, back, len(known_consts), len(sums) + len(carry)))
    marks = iter([*const_marks, *carry_marks, *x_marks])
    found = []
    for i, is_lin in enumerate(linear):
        in_carry = num_consts <= i < num_consts + num_carry
        ct = next(outs) if (is_lin or in_carry) and next(marks) else None
        found.append(ct if is_lin else None)
    if logs is not None:
        log(logs.unflatten(list(outs)))
    return found


def _bind(
    args: Sequence[Any], own: ScanParams, body: Program, num_consts: int, num_carry: int
) -> list[Any]:
    """The results of the scan with another body, for arguments of its types."""
    whole, types = num_consts + num_carry, body.in_types
    types = [*types[:whole], *[stacked_type(t, own.length) for t in types[whole:]]]
    new = own._replace(body=body, num_consts=num_consts, num_carry=num_carry)
    return scan(*[fit(a, t) for a, t in zip(args, types, strict=True)], **new._asdict())


# -- batching --


@derived
def batched_body(
    body: Program, axis: Axis, num_consts: int, num_carry: int, batched: Marks
) -> tuple[Program, Marks, Marks]:
    """The body over values with a batch dimension; which carries and which ys have one."""
    consts, carry, xs = parts(batched, num_consts, num_carry)
    others = (False,) * (len(body.outvars) - num_carry)
    while True:
        new, marks = batch_program(body, axis, (*consts, *carry, *xs), (*carry, *others))
        if marks[:num_carry] == carry:
            return new, carry, marks[num_carry:]
        carry = either(carry, marks[:num_carry])


def _batch(op: Op, mapped: MappedAxis, args: Any, dims: Any, **params: Any) -> tuple[list, list]:
    own = ScanParams(**params)
    num_consts, num_carry = own.num_consts, own.num_carry
    batched = tuple([d is not None for d in dims])
    axis = mapped.of(args, dims)
    new, carry_marks, y_marks = batched_body(own.body, axis, num_consts, num_carry, batched)
    wanted = [0 if b else None for b in batched[:num_consts]]
    wanted += [0 if m else None for m in carry_marks]
    wanted += [1 if b else None for b in batched[num_consts + num_carry :]]
    moved = [to_dim(a, d, w, mapped.size) for a, d, w in zip(args, dims, wanted, strict=True)]
    outs = _bind(moved, own, new, num_consts, num_carry)
    return outs, [0 if m else None for m in carry_marks] + [1 if m else None for m in y_marks]


def _remat(
    op: Op, inside: Callable[..., Any], eqn: Equation
) -> tuple[Equation, list[Var], Equation]:
    """The saved values of the body are stacked."""
    parts, body = inside(eqn.params["body"])
    if not parts.saved:
        return eqn, [], eqn
    stacked = [Var(stacked_type(v.aval, eqn.params["length"])) for v in parts.saved]
    first = body.replace(outvars=[*body.outvars, *parts.saved], eqns=parts.first)
    second = body.replace(inputs=[*body.inputs, *parts.saved], eqns=parts.second)
    return (
        eqn.replace(params={**eqn.params, "body": first}, outvars=[*eqn.outvars, *stacked]),
        stacked,
        eqn.replace(params={**eqn.params, "body": second}, invars=[*eqn.invars, *stacked]),
    )


# -- dead code --


@prunes
def _prune(eqn: Equation, needed: Marks) -> Equation:
    """The scan with the needed results only, the carries that they need, and their operands."""
    own = ScanParams(**eqn.params)
    body, read, kept = live_body(own.body, own.num_consts, own.num_carry, needed)
    consts, carry, _ = own.parts(read)
    counts = {"num_consts": sum(consts), "num_carry": sum(carry)}
    return eqn.replace(
        invars=tuple(picked(eqn.invars, read)),
        outvars=tuple(picked(eqn.outvars, kept)),
        params={**eqn.params, "body": body, **counts},
    )


@derived
def live_body(
    body: Program, num_consts: int, num_carry: int, needed: Marks
) -> tuple[Program, Marks, Marks]:
    """The body without dead code; which of its arguments it reads, and which results it has."""
    end, kept = num_consts + num_carry, needed
    while True:
        new = pruned(body, picked(body.outvars, kept))
        live = used(new)
        read = tuple([v in live for v in body.invars])
        grown = (*either(kept[:num_carry], read[num_consts:end]), *kept[num_carry:])
        if grown == kept:
            break
        kept = grown
    read = (*read[:num_consts], *kept[:num_carry], *read[end:])
    return new.replace(inputs=[*new.constvars, *picked(new.invars, read)]), read, kept


def _keys(op: Op, flow: Any, args: Any, **params: Any) -> list[Any]:
    """Two iterations: keys used in both are used in others, too."""
    own = ScanParams(**params)
    consts, carry, xs = own.parts(args)
    ys: Any = ()
    for i in range(min(own.length, 2)):
        outs = flow.through(own.body, [*consts, *carry, *[flow.row(x, i) for x in xs]])
        carry, ys = outs[: own.num_carry], outs[own.num_carry :]
    for x in xs:
        flow.as_first(x)
    return [*carry, *[flow.stacked(y, own.length) for y in ys]]


scan = Op(
    "scan",
    type_rule=_type,
    lower=lower_scan,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    enter=enter_scan,
    prune=_prune,
    multiple=True,
    contains=Programs(("body",), eval=eval_scan, key_reuse=_keys, remat=_remat),
    aliases={"jaxpr": "body"},
)
