"""The eager interpreter: runs each op, and each fused function, as one cached program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src import numpy as numpy_functions
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.caches import SIGNED, exact, make_room, register
from shardwise._src.base.config import numpy_rank_promotion
from shardwise._src.base.context import current, update_root
from shardwise._src.control.entering_rules import eval_call
from shardwise._src.core.fused import VARIADIC, Fused, equal_form, form_of, is_plain
from shardwise._src.core.infer import HOST, as_arraylike, type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import BoundOp, Op
from shardwise._src.core.program import Program, eval_program, held_in
from shardwise._src.core.program_tools import single, walk
from shardwise._src.messages.called import is_called_with
from shardwise._src.messages.formatting import short_repr, to_register
from shardwise._src.ops.sharded.sharding_ops import sharding_constraint
from shardwise._src.running.eager_indexing import Indexing
from shardwise._src.running.plan import build
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.dlpack import from_dlpack
from shardwise._src.transfers.pickling import copied
from shardwise._src.transfers.targets import as_sharding
from shardwise._src.transfers.transfer import (
    default_place,
    move,
    put_by_default,
    put_host,
    replicated_like,
    replicated_on,
    scalar,
    scalars,
)
from shardwise._src.transfers.transfer_guards import host_operand
from shardwise._src.transforms.stage import stage_fused
from shardwise._src.transforms.tracer import Tracer, escaped
from shardwise._src.types.array_type import array_type
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.values import numpy_modules
from shardwise._src.values.value import Value

CACHE_SIZE = 8192


class Eager(Interpreter, Indexing):
    """The end of every chain of interpreters. Caches programs by op and signatures."""

    eager = True
    __slots__ = ("cache",)

    def __init__(self) -> None:
        super().__init__(None, "eager", "execution")
        self.cache: dict[tuple, Callable[[Sequence[Any]], Any]] = {}

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if op.eager is not None:
            return self._run_user_code(op, args, params)
        try:  # checking each argument's type would be 10% slower
            key = (op, current().key, *[a._sig for a in args], *params, *params.values())
            kept = _table_of(op, params) if op.programs else self.cache
            run = kept.get(key) if SIGNED.isdisjoint(map(type, params.values())) else None
        except (AttributeError, TypeError):  # a host value; an unhashable parameter
            run = None
        if run is None:
            args = self._operands(op, args)
            run = self._op_program(op, args, params)
        return run(args)

    def process_ready(self, ready: BoundOp, args: Sequence[Any]) -> Any:
        if ready.op.eager is not None:
            return self.process(ready.op, args, ready.params)
        try:
            run = ready.runs.get((current().key, *[a._sig for a in args]))
        except AttributeError:  # a host value
            run = None
        if run is None:
            args = self._operands(ready.op, args)
            key = (current().key, *[a._sig for a in args])
            run = ready.runs.get(key)
            if run is None:
                make_room(ready.runs, CACHE_SIZE)
                run = ready.runs[key] = self._op_program(ready.op, args, ready.params)
        return run(args)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        n, here = fused.arrays, current().key
        form, given = fused, args
        if static or len(args) > n:
            try:
                form, given = equal_form(fused, *args[n:], **static), args[:n]
                if form.ambiguous:
                    form = form_of(fused, args[n:], static)
            except TypeError:  # an unhashable static argument: converted, or rejected
                form = None
            if form is None:
                return self._new_call(fused, args, static)
        key = None
        if len(given) == 2:  # building a list of two would double the cost
            x, y = given
            if x.__class__ is Array and y.__class__ is Array:
                key = (form, here, x._sig, y._sig)
        elif len(given) == 1:
            if given[0].__class__ is Array:
                key = (form, here, given[0]._sig)
        else:
            sigs = [a._sig for a in given if a.__class__ is Array]
            if len(sigs) == len(given):
                key = (form, here, *sigs)
        if key is None:
            run, given = self._with_scalars(form, here, given)
        else:
            run = self.cache.get(key)
        return self._new_call(fused, args, static) if run is None else run(given)

    def call_as_one(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        n, form, given, key, run = fused.arrays, fused, args, None, None
        try:
            if static or len(args) > n:
                form, given = equal_form(fused, *args[n:], **static), args[:n]
            if len(given) == 1:
                key = (form, current().key, given[0]._sig)
            else:
                key = (form, current().key, *[a._sig for a in given])
            run = self.cache.get(key)
        except (AttributeError, TypeError):  # a host value; an unhashable static argument
            pass
        if run is None and key is not None and given:
            run = self._as_one(fused, key, given, args[n:], static)
        return fused.fun(*args, **static) if run is None else run(given)

    def _as_one(
        self,
        fused: Fused,
        key: tuple,
        arrays: Sequence[Any],
        rest: Sequence[Any],
        static: dict[str, Any],
    ) -> Callable | None:
        """The function as one program; None if it cannot be one."""
        if not all(map(is_plain, (*rest, *static.values()))):
            return None
        try:
            made = stage_fused(fused, [a.aval for a in arrays], rest, static, self)
        except Exception:  # the function itself will raise it again
            return None
        return _program(self.cache, key, arrays, lambda: made)

    def _with_scalars(self, form: Any, here: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The program and operands of a call with host values; None if one of them is new."""
        near = args[0] if args[0].__class__ is Array else args[-1]
        held = near._sig.ints if near.__class__ is Array else scalars
        arrays = []
        try:
            for a in args:
                kind = a.__class__
                if kind is np.ndarray and a.ndim:
                    a = host_operand(put_by_default(a, here))
                elif kind is not Array:
                    a = held[a, kind if a else exact(a), here]
                arrays.append(a)
        # New; unhashable, or without a truth value (RuntimeError in torch): not a scalar.
        except (KeyError, TypeError, ValueError, RuntimeError):
            return None, args
        return self.cache.get((form, here, *[a._sig for a in arrays])), arrays

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        try:  # as in `process`
            key = (self, current().key, *[a._sig for a in args])
        except AttributeError:
            args = self.arrays(args)
            key = (self, current().key, *[a._sig for a in args])
        run = program.derived.get(key)
        if run is None:
            if _runs_by_equation(program):
                return self._by_equation(program, args)
            run = _program(program.derived, key, args, lambda: (program, _list_of(program)))
        return run(args)

    def runner(
        self, program: Program, args: Sequence[Array], *, as_list: bool
    ) -> Callable[[Sequence[Any]], Any]:
        out_tree = _list_of(program) if as_list else None
        sigs = [a._sig for a in args]
        return build(program, sigs, out_tree=out_tree, quick=True).runner()

    # -- values --

    def arrays(self, args: Sequence[Any], near: Signature | None = None) -> list[Array]:
        near = near or next((a._sig for a in args if a.__class__ is Array), None)
        return [
            a
            if a.__class__ is Array
            else scalar(a, near)
            if isinstance(a, bool | int | float | complex | np.generic)
            else self.array(a)
            for a in args
        ]

    def with_signatures(self, args: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        try:
            return args, [a._sig for a in args]
        except AttributeError:  # host values
            arrays = self.arrays(args)
            return arrays, [a._sig for a in arrays]

    def _operands(self, op: Op, args: Sequence[Any]) -> list[Array]:
        """The operands as arrays. Programs need the types that they were traced for, so operands
        without explicit placement are then not put on the mesh in scope."""
        if not op.programs:
            return self.arrays(args)
        if current().mesh is None:
            return [self.array(a) for a in args]
        with current().replace(mesh=None).entered():
            return [self.array(a) for a in args]

    def new_array(self, x: Any) -> Array:
        return put_host(x, default_place(), False)

    def array(self, x: Any) -> Array:
        if x.__class__ is Array:
            return x
        if isinstance(x, Tracer):
            raise escaped(x)
        if isinstance(x, np.ndarray) and x.ndim:
            return host_operand(put_host(x, default_place(), False))
        if isinstance(x, HOST):
            return scalar(x[()] if isinstance(x, np.ndarray) else x)
        if isinstance(x, Value):
            raise TypeError(f"{type(x).__name__} is not an array that eager ops accept")
        converted = as_arraylike(x)
        if converted is not x:
            return self.array(converted)
        if isinstance(x, list | tuple):
            type_of(x)  # raises
        raise TypeError(f"expected an array or a scalar, got {short_repr(x)}.{to_register(x)}")

    def place(self, x: Any, target: Any) -> Any:
        sharding = as_sharding(target, "device")
        if isinstance(x, Tracer) or isinstance(getattr(sharding, "mesh", None), AbstractMesh):
            return sharding_constraint(x, sharding=sharding)  # in a trace, which has no devices
        return move(self.array(x), sharding)

    def run_fused_on(self, fused: Fused, args: tuple[Any, ...], target: Any) -> Any:
        if (here := current()).on_mesh:  # the target may be on other devices
            with here.replace(on_mesh=False).entered():
                return self.run_fused_on(fused, args, target)
        sharding = as_sharding(target, "device")
        near = signature(array_type((), np.dtype(bool)), replicated_on(sharding), False)
        arrays = [
            move(a, near.sharding) if a.__class__ is Array and a._sig.committed else a
            for a in self.arrays(args[: fused.arrays], near)
        ]
        rest = args[fused.arrays :]
        key = (form_of(fused, rest, {}), sharding, current().key, *[a._sig for a in arrays])

        def made() -> tuple[Program, Any]:
            return stage_fused(fused, [a.aval for a in arrays], rest, {}, self)

        return _program(self.cache, key, arrays, made, out_shardings=[sharding])(arrays)

    def copied(self, x: Array) -> Array:
        return copied(x)

    def readable(self, x: Any) -> Any:
        if x.__class__ is not Array or x.is_fully_addressable or x.is_fully_replicated:
            return x
        return move(x, replicated_on(x.sharding))

    def from_dlpack(self, x: Any, target: Any, copy: bool | None) -> Array:
        return from_dlpack(x, as_sharding(target, "device"), copy)

    def place_like(self, value: np.ndarray, near: Array) -> Array:
        sig = near._sig
        t = array_type(value.shape, sig.type.dtype, sig.type.weak_type)
        return put_host(value, replicated_like(sig), sig.committed, t)

    def run_op(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        arrays = self._operands(op, args)
        return self._op_program(op, arrays, params)(arrays)

    # -- cache misses --

    def _run_user_code(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        with current().under(self).entered():
            return op.eager(op, args, params)  # pyright: ignore[reportOptionalCall] (not None here)

    def _by_equation(self, program: Program, args: Sequence[Any]) -> list[Any]:
        with current().under(self).entered():
            return eval_program(program, args)

    def _op_program(self, op: Op, args: list[Array], params: dict[str, Any]) -> Callable:
        if op.contains.eval is eval_call and _runs_by_equation(params["program"]):
            return partial(self._by_equation, params["program"])
        kept = _table_of(op, params) if op.programs else self.cache
        signs = [exact(v) for v in params.values() if v.__class__ in SIGNED]
        key = (op, current().key, *[a._sig for a in args], *params, *params.values(), *signs)
        try:
            hash(key)
        except TypeError:
            raise TypeError(f"[{op.name}] parameters must be hashable; got {params}.") from None
        return _program(kept, key, args, lambda: _single(op, args, params), quick=not op.programs)

    def _new_call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        args, static = fused.positional(args, static)
        arrays = self.arrays(args[: fused.arrays])
        if numpy_rank_promotion.value != "allow" and not is_called_with([a.shape for a in arrays]):
            with numpy_rank_promotion("allow"):  # a program without the check, for other functions
                return self.call(fused, (*arrays, *args[fused.arrays :]), static)
        rest = tuple(_hashable(v) for v in args[fused.arrays :])
        static = {k: _hashable(v) for k, v in static.items()}
        try:
            form = form_of(fused, rest, static) if rest or static else fused
        except TypeError:
            if fused.arrays < VARIADIC and len(args) > fused.fun.__code__.co_argcount:
                return fused.fun(*args, **static)  # raises
            for v in (*rest, *static.values()):
                if isinstance(v, Tracer):
                    raise escaped(v) from None
            raise TypeError(
                f"{fused.name}: static arguments must be hashable; got {(*rest, *static.items())}."
            ) from None
        key = (form, current().key, *[a._sig for a in arrays])

        def made() -> tuple[Program, Any]:
            return stage_fused(fused, [a.aval for a in arrays], rest, static, self)

        return _program(self.cache, key, arrays, made)(arrays)


def _runs_by_equation(program: Program) -> bool:
    """Whether it contains a user's primitive that cannot be compiled, but can be run eagerly."""
    return any(
        eqn.op.eager is not None and eqn.op.foreign is not None and not eqn.op.foreign.has_lowering
        for eqn in walk(program)
    )


def _table_of(op: Op, params: dict[str, Any]) -> dict[Any, Any]:
    """The cache for an op with nested programs: stored on the first one, and freed with it."""
    return next(held_in(op, params)).derived


def _single(op: Op, args: Sequence[Array], params: dict[str, Any]) -> tuple[Program, Any]:
    """A program with a single equation, and the pytree of its results."""
    program = single(op, tuple([a.aval for a in args]), params)
    return program, _list_of(program) if op.multiple else None


def _list_of(program: Program) -> Any:
    """The pytree of a program's results as a list."""
    return flatten([0] * len(program.outvars))[1]


def _program(
    kept: dict[Any, Any],
    key: tuple,
    arrays: Sequence[Array],
    made: Callable[[], tuple[Program, Any]],
    *,
    quick: bool = True,
    **options: Any,
) -> Callable[[Sequence[Any]], Any]:
    """The function that runs a program on arrays like these: from a cache, else compiled.

    made: returns the program and the pytree of its results (None for an array).
    """
    run = kept.get(key)
    if run is None:
        program, out_tree = made()
        sigs = [a._sig for a in arrays]
        exe = build(program, sigs, out_tree=out_tree, quick=quick, **options)
        make_room(kept, CACHE_SIZE)
        run = kept[key] = exe.runner()
    return run


def _hashable(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_hashable(v) for v in x)
    if isinstance(x, np.ndarray):
        return tuple(_hashable(v) for v in x.tolist()) if x.ndim else x.item()
    return x


closed_by_fork(
    Eager,
    "process",
    "process_ready",
    "call",
    "call_as_one",
    "run",
    "getitem",
    "new_array",
    "run_fused_on",
    "place",
)
EAGER = Eager()
register(__name__, "programs", lambda: len(EAGER.cache), EAGER.cache.clear, CACHE_SIZE)
update_root(interpreter=EAGER)
numpy_modules.modules.package = numpy_functions
