"""The `jit` op: a call of a nested program, as nested `jit` stages it.

`calling` creates ops that share its rules and call their program in another way; `opaque_call`
creates ops that are not equivalent to their programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.base.marks import given, merge, partition, spread
from shardwise._src.control.entering_rules import enter_call, eval_call
from shardwise._src.core.op import KeyReuseRule, LowerRule, Op, ProcessRule, Programs, is_linear
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, prune_call
from shardwise._src.messages.source import marked
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.transforms.batch import MappedAxis, batch_program, moved_into
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.linearize import split_program
from shardwise._src.transforms.transpose import transpose, transpose_program, transposes_inline


def _type(op: Op, *types: Any, program: Program, **p: Any) -> tuple:
    return program.out_types


def lower_call(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, **p: Any
) -> list[str]:
    return e.call(program, *xs)


def _jvp(op: Op, primals: Any, tangents: Any, *, program: Program, **p: Any) -> tuple[list, list]:
    nonzero = tuple(t is not None for t in tangents)
    both, marks = jvp_program(program, nonzero)
    args = [*primals, *given(tangents)]
    results = op(*map(reshard_like, args, both.in_types), program=both, **p)
    count = len(program.outvars)
    return results[:count], spread(results[count:], marks)


def partial_eval_call(
    op: Op,
    interpreter: Any,
    args: Any,
    params: dict,
    known: Op | None = None,
    rest_params: dict[str, Any] | None = None,
    **facts: Any,
) -> list[Any]:
    """Partial evaluation: the known part runs now, the rest is staged with residuals.

    known, facts: the op for the known part, if it is another one, and its further parameters.
    rest_params: parameters that differ in the rest.
    """
    unknown = tuple(interpreter.is_unknown(a) for a in args)
    parts = split_program(params["program"], unknown)
    known_args, rest_args = partition(args, unknown)
    program, places = parts.distinct()
    outs = interpreter.known(known or op, known_args, params | facts | {"program": program})
    residuals = parts.residuals(known_args, [outs[k] for k in places])
    left = params | (rest_params or {}) | {"program": parts.rest}
    rest = interpreter.record(op, (*residuals, *rest_args), left)
    return merge(parts.unknown_out, rest, outs[: parts.unknown_out.count(False)])


def _transpose(op: Op, cts: Any, *args: Any, program: Program, **p: Any) -> list[Any]:
    linear = tuple(is_linear(a) for a in args)
    ordered = known_first(program, linear)
    known, _ = partition(args, linear)
    if transposes_inline(program):
        return spread(transpose(ordered, known, cts), linear)
    nonzero = tuple(ct is not None for ct in cts)
    backward, marks = transpose_program(ordered, len(known), nonzero, exact=False)
    values = [*known, *given(cts)]
    results = op(*map(reshard_like, values, backward.in_types), program=backward, **p)
    return spread(spread(results, marks), linear)


@derived
def known_first(program: Program, linear: tuple[bool, ...]) -> Program:
    """The program with its linear arguments last."""
    if list(linear) == sorted(linear):
        return program
    known, last = partition(program.invars, linear)
    return program.replace(inputs=[*program.constvars, *known, *last])


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, program: Program, **p: Any
) -> tuple[list, list]:
    batched = tuple(d is not None for d in dims)
    new, marks = batch_program(program, mapped.of(args, dims), batched)
    moved = moved_into(new, args, dims)
    return op(*moved, program=new, **p), [0 if m else None for m in marks]


def calling(
    name: str,
    lower: LowerRule,
    split: ProcessRule,
    is_call: bool = False,
    key_reuse: KeyReuseRule | None = None,
    **facts: Any,
) -> Op:
    """An op that calls its parameter `program`; other parameters are passed unchanged."""
    return Op(
        name,
        type_rule=_type,
        lower=lower,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        partial_eval=split,
        enter=enter_call,
        prune=prune_call,
        multiple=True,
        contains=Programs(("program",), is_call=is_call, eval=eval_call, key_reuse=key_reuse),
        aliases={"jaxpr": "program", "call_jaxpr": "program", "name": lambda p: p["program"].name},
        **facts,
    )


def _lower_marked(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, attributes: Any, **p: Any
) -> list[str]:
    if not attributes:
        return e.call(program, *xs)
    return e.under_marks(marked(dict(attributes)), program, *xs)


def _split_marked(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    attributes = params["ad_attributes"]
    changed = {} if attributes is None else {"attributes": attributes, "ad_attributes": None}
    return partial_eval_call(op, interpreter, args, params, rest_params=changed)


def _lower_jit(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, inline: str | None = None
) -> list[str]:
    """inline: when the program replaces the call; by default, XLA chooses."""
    return e.inline(program, *xs) if inline == "jax_late" else e.call(program, *xs)


call = calling("jit", _lower_jit, partial_eval_call, is_call=True)


def _by_call(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of `call` for ops whose other parameters only apply to the original program."""

    def applied(op: Op, *args: Any, program: Program, **p: Any) -> Any:
        return rule(call, *args, program=program)

    return applied


batch_as_call, _transpose_as_call, jvp_as_call = map(_by_call, (_batch, _transpose, _jvp))


def _partial_eval_as_call(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    return partial_eval_call(call, interpreter, args, {"program": params["program"]})


def _enter_beside(
    op: Op, inside: Any, state: list[Any], args: list[Any], *, program: Program, **p: Any
) -> tuple[list[Any], list[Any]]:
    """The results keep the op's own derivatives; the state is computed separately, without any."""
    if inside.at_lowering:
        return enter_call(call, inside, state, args, program=program)
    _, state = enter_call(call, inside, state, [*map(stop_gradient, args)], program=program)
    return op(*args, program=inside.plain(program), **p), state


def opaque_call(name: str, **rules: Any) -> Op:
    """An op that calls its parameter `program`; its other parameters only apply to this program, so
    that `jit` calls those derived from it, except where `rules` has another rule.
    """
    common: dict[str, Any] = {
        "type_rule": _type,
        "lower": lower_call,
        "transpose": _transpose_as_call,
        "batch": batch_as_call,
        "enter": _enter_beside,
        "multiple": True,
        "contains": Programs(("program",), eval=eval_call),
    }
    return Op(name, **common | rules)


def described_call(name: str, **facts: Any) -> Op:
    """An op that calls its parameter `program`, and whose other parameters say what this program
    does: its derivatives are those of the program."""
    return opaque_call(name, jvp=jvp_as_call, partial_eval=_partial_eval_as_call, **facts)


def enter_unless_lowered(
    op: Op, inside: Any, state: list[Any], args: list[Any], *, program: Program, **p: Any
) -> tuple[list[Any], list[Any]]:
    """For ops that mean more than their program, which cannot replace them in a module."""
    if inside.at_lowering:
        raise NotImplementedError(
            f"[{op.name}] does not support ordered effects in its function. Pass ordered=False, or "
            "call the host outside of it."
        )
    return _enter_beside(op, inside, state, args, program=program, **p)


# Calls by an instruction with attributes, pairs of strings; `ad_attributes`: those of derivatives,
# if they differ.
xla_metadata_call = calling("xla_metadata_call", _lower_marked, _split_marked)
compute_on_op = calling("compute_on", _lower_marked, partial_eval_call)
