"""User functions as bodies of control flow: staged, checked, and cached.

Staged bodies are cached in their function's `BodyCache`, by types and context, for the function's
lifetime. Functions that are created repeatedly from the same code share one cache if it is cheap to
verify that they do the same (`core/fingerprints.py`) and that nothing they use can be mutated.

    body_caches[f].bodies[key]      # the fast path, in the public functions
    body_cache_of((f,), key)[0].bodies   # creates it

`map` and `associative_scan` look up staged bodies by fingerprint only, at each call.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise._src.base.caches import Table, make_room, register
from shardwise._src.control.programs import Extension, fit
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fingerprints import fingerprint_of, note
from shardwise._src.core.infer import as_arraylike, is_operand, type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import consts_to_args, walk
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.call_errors import reject_call
from shardwise._src.messages.formatting import short_repr, to_register
from shardwise._src.messages.source import describe
from shardwise._src.messages.tree_paths import path_in, tree_difference
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.refs.refs import Ref, keepable, reject_returned, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import stage
from shardwise._src.types.annotations import T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.promotion import lattice_join
from shardwise._src.types.sharding import NamedSharding

BODIES_PER_FUNCTION = 256
FINGERPRINTS = 256  # recreated functions that share a cache

# -- the cache --


class BodyCache:
    """Staged bodies of functions that do the same, by staging key.

    recipe: the fingerprint of these functions (see `core.fingerprints`); None if for one function.
    """

    __slots__ = ("bodies", "fingerprint")

    def __init__(self, fingerprint: Any = None) -> None:
        self.bodies: dict[tuple, Any] = {}
        self.fingerprint = fingerprint

    def keep(self, key: tuple, body: Any) -> None:
        make_room(self.bodies, BODIES_PER_FUNCTION)
        self.bodies[key] = body


body_caches: weakref.WeakKeyDictionary[Any, BodyCache] = weakref.WeakKeyDictionary()
_by_fingerprint: Table[BodyCache] = Table(__name__, "bodies by fingerprint", FINGERPRINTS)
register(__name__, "functions of loops", lambda: len(body_caches), body_caches.clear)


def body_cache_of(funs: Sequence[Callable], key: tuple) -> tuple[BodyCache, tuple]:
    """The cache of the first of some functions, and the key there for all of them.

    Bodies that were staged for them remain valid, though one of them may do something else by now.
    If nothing was staged, such a function leaves the cache that it shared with others.
    """
    try:
        first, *others = [body_caches[f] for f in funs]
        if (*others, *key) in first.bodies:
            return first, (*others, *key)
    except (KeyError, TypeError):
        pass
    first, *others = map(_current_body_cache, funs)
    return first, (*others, *key)


def cached_body(funs: Sequence[Callable], key: tuple, stage: Callable[[], tuple[T, bool]]) -> T:
    """The cached body of some functions; `stage` returns a new one, and whether to cache it."""
    cache, key = body_cache_of(funs, key)
    found = cache.bodies.get(key)
    if found is None:
        found, may_keep = stage()
        if may_keep:
            cache.keep(key, found)
    return found


def _current_body_cache(fun: Callable) -> BodyCache:
    """The cache for a function's current fingerprint; a separate one if it has none."""
    try:
        found = body_caches.get(fun)
        fingerprint = fingerprint_of(fun, mutable=False)
        if found is None:
            found = body_caches[fun] = _body_cache_by(fingerprint)
        elif found.fingerprint is not None and found.fingerprint != fingerprint:
            found = body_caches[fun] = BodyCache()
        note(fun, fingerprint)
    except TypeError:  # unhashable, or not weakly referenceable
        return BodyCache()
    return found


def body_cache_by_fingerprint(fun: Callable) -> BodyCache:
    """The cache shared by functions with this one's current fingerprint; empty if it has none.

    For functions that jax runs again at each call, so that the function is read at that time.
    """
    return _body_cache_by(fingerprint_of(fun, mutable=False))


def _body_cache_by(fingerprint: Any) -> BodyCache:
    if fingerprint is None:
        return BodyCache()
    return _by_fingerprint.find(fingerprint) or _by_fingerprint.put(
        fingerprint, BodyCache(fingerprint)
    )


# -- staging --


@dataclass(slots=True, eq=False)
class Body:
    """A staged function.

    program: takes the captured values, then leaves; it has no constants.
    outside: the captured values: constants, and values of outer traces.
    tree:    the pytree of its result.
    captures: whether it uses values of outer traces, so that it must not be cached.
    refs:    captured refs that it accesses: their values are its last arguments and results.
    """

    program: Program
    outside: list[Any]
    tree: Any
    captures: bool
    refs: Sequence[Ref] = ()

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        """The types of the results, without those of refs."""
        types = self.program.out_types
        return types[: len(types) - len(self.refs)]


def staged(
    fun: Callable,
    types: Sequence[ArrayType],
    who: str,
    name: str = "",
    names: Sequence[str] = (),
    as_leaves: Callable | None = None,
    with_refs: bool = False,
) -> Body:
    """Stages `fun(*leaves) → pytree`.

    with_refs: whether captured refs may be accessed.

    names: of the leaves, for messages. as_leaves: returns the leaves and pytree of a result; by
    default the result may be any pytree.
    """
    trees: list[Any] = []
    name = name or name_of(fun)

    def flat(*leaves: Any) -> list[Any]:
        try:
            result = fun(*leaves)
        except TypeError as error:
            reject_call(error, who, names)
            raise
        outs, tree = flatten(result) if as_leaves is None else as_leaves(result)
        trees.append(tree)
        reject_returned(f"{who}: {name}", outs)
        return [leaf(x, who, f"the result of {name}", tree, i) for i, x in enumerate(outs)]

    refs: list[Ref] | None = [] if with_refs else None
    program, captured = stage(flat, types, transform=who, name=name, names=names, refs=refs)
    program, constants = consts_to_args(program)
    if refs and as_leaves is not None:  # a loop carries them
        _check_refs(who, program, refs)
    captures = bool(captured) or not keepable(refs or ())
    return Body(program, [*constants, *captured], trees[0], captures, refs or ())


def reject_own_effects(who: str, *programs: Program) -> None:
    """Raises if user-defined primitives have effects: only those of the library are supported."""
    for eqn in (eqn for p in programs if p.effects for eqn in walk(p)):
        if eqn.op.foreign is not None and eqn.op.effects:
            raise NotImplementedError(
                f"{who} does not support the effects of {eqn.op.name}, at {describe(eqn.site)}: "
                f"{', '.join(map(str, eqn.op.effects))}. Call the host with "
                "`shardwise.experimental.io_callback` instead."
            )


def _check_refs(who: str, program: Program, refs: Sequence[Ref]) -> None:
    """Raises if a loop iteration makes a ref vary along axes along which its value does not."""
    count = len(refs)
    rows = zip(refs, program.in_types[-count:], program.out_types[-count:], strict=True)
    for ref, start, end in rows:
        if left := sorted(end.varying - start.varying, key=str):
            raise ValueError(
                f"{who}: the value written to {ref.short} in the loop, of type "
                f"{end.str_short(True)}, may vary along {', '.join(map(repr, left))}, but the ref "
                "has one value along these axes. Create it inside `shard_map`, pass it in with a "
                "spec that names them, or write a value that is the same on all devices."
            )


def together(bodies: Sequence[Body]) -> tuple[list[Program], list[Any]]:
    """Programs that all take the captured values of all bodies, and these values."""
    outside = {id(x): x for body in bodies for x in body.outside}
    programs = []
    for body in bodies:
        own = dict(zip(map(id, body.outside), body.program.inputs, strict=False))
        held = [own.get(i) or Var(type_of(x)) for i, x in outside.items()]
        p, count = body.program, len(body.outside)
        inputs = [*held, *p.inputs[count:]]
        programs.append(p.replace(inputs=inputs))
    return programs, list(outside.values())


def threading(body: Body, refs: Sequence[Ref]) -> Body:
    """The body with exactly these refs, which include its own."""
    if list(refs) == list(body.refs):
        return body
    p, count = body.program, len(body.refs)
    inputs, outputs = p.inputs[: len(p.inputs) - count], p.outvars[: len(p.outvars) - count]
    held = dict(zip(body.refs, p.inputs[len(inputs) :], strict=True))
    last = dict(zip(body.refs, p.outvars[len(outputs) :], strict=True))
    starts = [held.get(r) or Var(r.type) for r in refs]
    ends = [last.get(r) or start for r, start in zip(refs, starts, strict=True)]
    new = p.replace(inputs=[*inputs, *starts], outvars=[*outputs, *ends])
    return replace(body, program=new, refs=refs)


# -- carries --


def widened(given: ArrayType, returned: ArrayType) -> ArrayType:
    """The type of a carry: if the given one is weak, has no mesh, or varies along fewer axes, the
    type that the body returns replaces it.
    """
    given = on_mesh_of(given, returned)
    if not given.weak_type or given.shape != returned.shape:
        return given
    pairs = (given.dtype, True), (returned.dtype, returned.weak_type)
    dtype, weak = lattice_join(*pairs)
    return given.update(dtype=dtype, weak_type=weak and dtype == given.dtype)


def on_mesh_of(t: ArrayType, other: ArrayType) -> ArrayType:
    """The type with the mesh of another one, and its varying names, too.

    A value without a mesh is replicated; a value that does not vary may have a type that does.
    """
    if not t.varying >= other.varying:
        t = t.vary(other.varying)
    if t.mesh is not None or other.mesh is None:
        return t
    return t.update(mesh=other.mesh, spec=PartitionSpec())


def widest(
    types: list[ArrayType], body_of: Callable[[list[ArrayType]], Body], first: int = 0
) -> tuple[Body, list[ArrayType]]:
    """The body at the types to which the carry converges.

    Varying names spread through a carry iteration by iteration, until the types no longer change. A
    carry that is only weak does not cause the function, which may have Python side effects, to run
    again.
    first: how many results of the body precede those of the carry.
    """
    while True:
        body = body_of(types)
        wider = [widened(a, b) for a, b in zip(types, body.out_types[first:], strict=False)]
        if wider == types:
            return body, types
        if all(a.strong() is b.strong() for a, b in zip(types, wider, strict=True)):
            body.program = _taking(body.program, len(body.outside) + first, wider)
            return body, wider
        if all(a.varying == b.varying for a, b in zip(types, wider, strict=True)):
            return body_of(wider), wider
        types = wider


def _taking(program: Program, at: int, types: Sequence[ArrayType]) -> Program:
    """The program with arguments, from number `at` on, with strong types instead of weak ones."""
    inputs, casts = list(program.inputs), []
    for i, t in enumerate(types, at):
        old = inputs[i]
        if old.aval is not t:
            inputs[i] = Var(t)
            params = {"dtype": t.dtype, "weak": True}
            casts.append(Equation(convert_element_type, [inputs[i]], [old], params, None))
    return program.replace(inputs=inputs, eqns=[*casts, *program.eqns])


def with_types(program: Program, types: Sequence[ArrayType]) -> Program:
    """The program with its first results in exactly these types."""
    if all(a.aval is t for a, t in zip(program.outvars, types, strict=False)):
        return program
    new = Extension(program.eqns)
    fitted = [new.fit(a, t) for a, t in zip(program.outvars, types, strict=False)]
    outputs = [*fitted, *program.outvars[len(types) :]]
    return program.replace(outvars=outputs, eqns=new.eqns)


def check_carry(
    who: str, name: str, tree: Any, types: Sequence[ArrayType], returned: Sequence[ArrayType]
) -> None:
    rows: list[str] = []
    kinds: list[str] = []
    for i, (a, b) in enumerate(zip(types, returned, strict=False)):
        if a.strong() is not on_mesh_of(b, a).strong():
            found = differing(a, on_mesh_of(b, a))
            kinds += found
            rows.append(
                f"{path_in('carry', tree, i)} came in as {a.str_short(True)} and was "
                f"returned as {b.str_short(True)} (differs in {' and '.join(found)})"
            )
    if rows:
        raise TypeError(
            f"{who}: {name} must return the carry with its input types; "
            f"{', '.join(rows)}. Change init or {name} so that they agree{remedy(kinds)}."
        )


_REMEDIES = {
    "dtype": "`astype`",
    "sharding": "`shardwise.sharding.reshard`",
    "varying names": "`shardwise.lax.pcast`",
}


def differing(*types: ArrayType) -> list[str]:
    """How types differ, for messages."""
    columns = {
        "shape": [t.shape for t in types],
        "dtype": [t.dtype for t in types],
        "sharding": [(t.mesh, t.spec) for t in types],
        "varying names": [(t.varying, t.unreduced, t.reduced) for t in types],
    }
    return [what for what, column in columns.items() if any(c != column[0] for c in column)]


def remedy(kinds: Sequence[str]) -> str:
    """`, for example with f`: how to make such types agree; the end of a sentence."""
    names = [_REMEDIES[k] for k in dict.fromkeys(kinds) if k in _REMEDIES]
    return f", for example with {' and '.join(names)}" if names else ""


def steps_per_turn(who: str, unroll: Any) -> int:
    """How many steps one iteration of a loop does; False and 0 mean one."""
    try:
        count = operator.index(unroll) or 1
    except TypeError:
        if hasattr(unroll, "needed_for_shape"):  # traced
            raise unroll.needed_for_shape(f"{who}: unroll") from None
        count = 0
    if count < 1:
        raise ValueError(f"{who}: unroll must be a bool or a non-negative int; got {unroll!r}.")
    return count


def check_carry_tree(who: str, name: str, wanted: Any, tree: Any) -> None:
    if tree != wanted:
        differences = tree_difference("init", wanted, "the result", tree, "carry")
        raise TypeError(
            f"{who}: {name} must return a carry with the pytree structure of init; {differences}."
        )


@dataclass(slots=True, eq=False)
class Loop:
    """A loop over a staged body, with everything that a call needs.

    op:     with its parameters.
    consts: values of the first arguments of the op.
    casts:  (position, type) of leaves that the body requires in another type.
    tree:   the pytree of the results.
    refs:   captured refs, whose values are carried.
    at:     how many leaves, and results, precede those values.
    """

    op: BoundOp
    consts: list[Any]
    casts: list[tuple]
    tree: Any
    refs: Sequence[Ref] = ()
    at: int = 0

    def fit(self, leaves: list[Any]) -> None:
        """Converts leaves to the types that the body requires."""
        for position, t in self.casts:
            x = fit(leaves[position], t)
            if t.mesh is not None and type_of(x).mesh is None:  # it is not on a mesh yet
                x = _beside_others(x, t, [*self.consts, *leaves])
            leaves[position] = x

    def __call__(self, leaves: list[Any]) -> Any:
        if self.casts:
            self.fit(leaves)
        if not self.refs:
            return self.tree.unflatten(self.op(*self.consts, *leaves))
        at, end = self.at, self.at + len(self.refs)
        given = [*leaves[:at], *values_of(self.refs), *leaves[at:]]
        outs = self.op(*self.consts, *given)
        write_back(self.refs, outs[at:end])
        return self.tree.unflatten([*outs[:at], *outs[end:]])


def _beside_others(x: Any, t: ArrayType, others: Sequence[Any]) -> Any:
    """An eager value on the devices of the first other value that is over the mesh of `t`."""
    for other in others:
        held = getattr(other, "sharding", None)
        if isinstance(held, NamedSharding) and held.mesh.abstract_mesh is t.mesh:
            return eval_trace().place(x, held.with_spec(t.spec or PartitionSpec()))
    return x


def casts_of(old: Sequence[ArrayType], new: Sequence[ArrayType]) -> list[tuple[int, ArrayType]]:
    """The casts for leaves that the body requires in another type."""
    pairs = enumerate(zip(old, new, strict=True))
    return [(i, b) for i, (a, b) in pairs if a is not b]


# -- user leaves and functions --


def leaf(x: Any, who: str, what: str, tree: Any, i: int) -> Any:
    """A leaf as something with a type."""
    x = as_arraylike(x)
    if is_operand(x):
        return x
    raise TypeError(
        f"{who}: {path_in(what, tree, i)} is {short_repr(x)}, which is not an "
        f"array.{to_register(x)}"
    )


def check_function(who: str, what: str, fun: Any) -> None:
    if not callable(fun):
        raise TypeError(f"{who}: {what} must be a function; got {fun!r}.")
