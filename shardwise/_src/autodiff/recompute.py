"""The `checkpoint` op: a call of a program whose values are recomputed in reverse mode.

Differentiation splits a program into a known part and a linear rest, which needs residuals from the
known part. An ordinary call stores them between the forward and the backward pass. A checkpoint
stores only those that its policy selects; its rest takes the known arguments in place of the
others, and begins with the equations that recompute the residuals from them:

    known:  (known…) → (results…, saved…)
    rest:   (known…, saved…, unknown…) → (unknown results…)       recomputes missing residuals

Policies apply inside `jit`, `scan` and `cond`: values saved there are stacked, or become results of
the branch. In a `while_loop`, which only forward mode differentiates, there is nothing to save.

The compiler would notice that both passes compute the same values, and merge them. So the rest is
lowered behind a barrier (`prevent_cse`), which also makes it wait for the cotangents; on CPUs,
where XLA drops barriers before it eliminates common subexpressions, it is lowered as a branch that
is always taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwise._src.base.lazy import public
from shardwise._src.base.marks import merge, partition
from shardwise._src.control.bodies import reject_own_effects
from shardwise._src.control.call import call, calling
from shardwise._src.core.op import Elements, Op
from shardwise._src.core.program import Atom, Equation, Program, Var
from shardwise._src.core.program_tools import Rewriting, derived, inlined, pruned, without_dead_code
from shardwise._src.ops.barrier import optimization_barrier
from shardwise._src.ops.memory_kinds import Space, to_memory
from shardwise._src.transforms.linearize import Split, split_program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters

Policy = Callable[..., Any]


# -- results of policies --


class Offloadable(NamedTuple):
    """A policy's answer: save the value in another memory kind. The fields are memory kinds."""

    src: str
    dst: str


@public("shardwise.ad_checkpoint")
class Answer:
    """A policy's answer that consists only of its name."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        return self.name == "Saveable"

    def __reduce__(self) -> str:
        return self.name


Saveable, Recompute = Answer("Saveable"), Answer("Recompute")


def _answer(policy: Policy, eqn: Equation) -> bool | Space:
    """Whether the results of an equation are saved, or the space they are saved in."""
    if eqn.effects:  # side effects happen once
        return True
    found = policy(eqn.op, *[a.aval for a in eqn.invars], **eqn.params)
    if not isinstance(found, Offloadable):
        return bool(found)
    if found.src != "device" or found.dst not in ("pinned_host", "unpinned_host"):
        raise ValueError(
            f"checkpoint: a policy can only offload from 'device' to 'pinned_host'; got {found!r}."
        )
    return Space.Host


# -- splitting programs --


@dataclass(frozen=True)
class Plan:
    """How a list of equations runs again after its first run.

    first: the equations, and those that prepare the saved values.
    saved: values of the first run that the second needs.
    second: the equations of the second run.
    """

    first: list[Equation]
    saved: list[Var]
    second: list[Equation]


def plan(equations: Sequence[Equation], targets: Iterable[Atom], policy: Policy) -> Plan:
    """Determines what to save and what to recompute for `targets`."""
    needed = {a for a in targets if a.__class__ is Var}
    first: list[Equation] = []
    saved: list[Var] = []
    second: list[Equation] = []
    for eqn in reversed(equations):
        wanted = [v for v in eqn.outvars if v in needed]
        if not wanted:
            first.append(eqn)
            continue
        answer = _answer(policy, eqn)
        if not answer:
            before, inside, after = _in_two_runs(eqn, policy)
            first.append(before)
            saved += inside
            second.append(after)
            needed.update(a for a in after.invars if a.__class__ is Var and a not in inside)
            continue
        for v in wanted:
            if isinstance(answer, Space):
                held = Var(v.aval)
                first.append(Equation(to_memory, (v,), (held,), {"space": answer}, eqn.site))
                second.append(Equation(to_memory, (held,), (v,), {"space": Space.Device}, eqn.site))
                v = held
            saved.append(v)
        first.append(eqn)
    return Plan(first[::-1], saved, second[::-1])


def _in_two_runs(eqn: Equation, policy: Policy) -> tuple[Equation, list[Var], Equation]:
    """Splits an equation: returns one with the values saved inside it as additional results, these
    values, and one that takes them.
    """

    rule = eqn.op.contains.remat
    return (eqn, [], eqn) if rule is None else rule(eqn.op, Planner(policy), eqn)


@dataclass(frozen=True)
class Planner:
    """Plans programs inside of an equation."""

    policy: Policy

    def __call__(self, program: Program) -> tuple[Plan, Program]:
        program = without_calls(program)
        return plan(program.eqns, program.outvars, self.policy), program


@derived
def without_calls(program: Program) -> Program:
    """The program with its calls of nested programs inlined."""
    if not any(eqn.op.contains.is_call for eqn in program.eqns):
        return program
    return inlined(program, lambda eqn: eqn.called)


# -- the op --


def nothing(*args: Any, **params: Any) -> bool:
    return False


@derived
def remat_split(program: Program, unknown: tuple[bool, ...], policy: Policy | None) -> Split:
    """Splits a program like `split_program`, but with other residuals.

    The residuals are the known arguments that are needed, and the values saved by the policy.
    """
    reject_own_effects("checkpoint", program)
    split = split_program(program, unknown)
    known = without_calls(split.known)
    count = split.unknown_out.count(False)
    computed = iter(known.outvars[count:])
    sources = [next(computed) if i is None else known.invars[i] for i in split.forwarded]
    parts = plan(known.eqns, sources, policy or nothing)
    unknown_vars = split.rest.invars[len(split.forwarded) :]
    new = Rewriting(parts.second)
    outputs = new.add(split.rest, [*sources, *unknown_vars])
    equations = without_dead_code(outputs, new.eqns)
    used = {a for e in equations for a in e.invars} | set(outputs)
    places = [i for i, v in enumerate(known.invars) if v in used]
    constants = dict(zip(known.constvars, known.consts, strict=True)) | new.constants
    constants = {v: x for v, x in constants.items() if v in used}
    saved = [v for v in parts.saved if v in used]
    inputs = [*constants, *[known.invars[i] for i in places], *saved, *unknown_vars]
    rest = known.replace(inputs=inputs, outvars=outputs, eqns=equations, consts=constants.values())
    first = pruned(known.replace(eqns=parts.first), [*known.outvars[:count], *saved])
    forwarded = (*places, *[None] * len(saved))
    return Split(first, rest, split.unknown_out, forwarded)


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    unknown = tuple([interpreter.is_unknown(a) for a in args])
    parts = remat_split(params["program"], unknown, params["policy"])
    known_args, rest_args = partition(args, unknown)
    outs: list[Any] = []
    known, places = parts.distinct()
    if known.outvars or known.effects:
        outs = interpreter.known(call, known_args, {"program": known})
    residuals = parts.residuals(known_args, [outs[k] for k in places])
    new = {**params, "program": parts.rest, "differentiated": True}
    rest = interpreter.record(op, (*residuals, *rest_args), new)
    return merge(parts.unknown_out, rest, outs[: parts.unknown_out.count(False)])


def _lower(
    op: Op,
    e: Any,
    ins: Any,
    outs: Any,
    *xs: str,
    program: Program,
    prevent_cse: bool,
    policy: Policy | None,
    differentiated: bool,
) -> list[str]:
    if not (differentiated and prevent_cse and outs):
        return e.call(program, *xs)
    if not e.platform.is_xla_cpu:
        barrier: Any = optimization_barrier.lower
        return e.call(program, *barrier(optimization_barrier, e, ins, ins, *xs))
    return _in_branch(e, outs, program, xs)


def _in_branch(e: Any, outs: Sequence[ArrayType], program: Program, xs: Sequence[str]) -> list[str]:
    """The call as the first of two branches.

    It is always taken, because the only replica has number 0; the compiler does not exploit this.
    """
    types = ", ".join(map(e.ty, outs))
    number = e.let("stablehlo.replica_id : tensor<ui32>")
    which = e.let(f"stablehlo.convert {number} : (tensor<ui32>) -> tensor<i32>")

    def taken() -> None:
        results = e.inline(program, *xs, scope="checkpoint/rematted_computation")
        e.lines.append(f"stablehlo.return {', '.join(results)} : {types}")

    def other() -> None:
        zeros = [e.constant(0, t) for t in outs]
        e.lines.append(f"stablehlo.return {', '.join(zeros)} : {types}")

    regions = ", ".join(f"{{\n{e.region(write)}\n}}" for write in (taken, other))
    return e.lets(f'"stablehlo.case"({which}) ({regions}) : (tensor<i32>) -> ({types})', len(outs))


def _keys(op: Op, flow: Any, args: Any, *, program: Program, differentiated: bool, **p: Any) -> Any:
    """Recomputation uses the keys of the first run again."""
    return () if differentiated else flow.through(program, args)


checkpoint = calling("checkpoint", _lower, _split, key_reuse=_keys)


# -- names --


def _name_dims(op: Op, x: ArrayType, *, name: str) -> Dims:
    names = letters(x.ndim)
    return Dims((names,), (names,))


def _name_jvp(op: Op, primals: Any, tangents: Any, *, name: str) -> tuple[Any, Any]:
    return named(primals[0], name=name), tangents[0]


named = Op(
    "name",
    elements=Elements.MOVED,
    type_rule=lambda op, x, *, name: x.update(spec=None, mesh=None),
    dims=_name_dims,
    lower=lambda op, e, ins, outs, x, *, name: x,
    jvp=_name_jvp,
    transpose=lambda op, ct, x, *, name: [ct],
    batch=lambda op, mapped, args, dims, *, name: (op(args[0], name=name), dims[0]),
)
