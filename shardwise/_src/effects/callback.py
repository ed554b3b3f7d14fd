"""Ops that call host functions: `pure_callback`, `io_callback` and `debug_callback`.

A program holds a `Callback`: the user's function with everything a call needs. The op's operands
are the flattened arrays of its arguments; `results` has its result types. Compiled, the op is a
custom call of a `HostFunction`, see `Emitter.host_call`; eagerly, the function is simply called.

The kinds differ in what transforms and passes may do with them:

    pure_callback    no effect: removed if its results are unused. Batched as its method says.
    io_callback      never removed. Batched by a loop on the host.
    debug_callback   the same, and without results: derivatives ignore it.

The ordered ones also have the effect `ORDERED`: see `effects.ordering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.context import Context, current
from shardwise._src.base.lazy import public
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Entered, Op
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import walk
from shardwise._src.effects.ordering import IO, ORDERED, TOKEN
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.source import Site, describe, user_site
from shardwise._src.ops.basis import move_axis
from shardwise._src.runtime.pytree import flatten, flatten_with_path
from shardwise._src.transforms.batch import to_dim
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import canonicalize, iinfo, is_bool, is_inexact

CALLBACK = "callback"  # the effect of calling the host

Values = Sequence[Any]
Types = Sequence[ArrayType]


@dataclass(eq=False, repr=False, slots=True)
class Callback:
    """A user function, with everything needed to call it with flat arrays.

    fun:      called with the pytree of its arguments.
    kind:     the public function that it was passed to, for messages.
    in_tree, static: how arguments are made from arrays, and from the values that are not arrays,
              by position among the leaves.
    out_tree: pytree of its results; None for a function whose results are ignored.
    method:   `vmap_method` of a pure callback.
    local:    whether each device calls it with its own shards.
    device:   the device that calls it; None for the first device of the program.

    Equivalent callbacks are equal, so that programs that contain them are found in caches.
    """

    fun: Callable[..., Any]
    kind: str
    in_tree: Any
    static: dict[int, Any]
    out_tree: Any = None
    method: str | None = None
    local: bool = False
    device: Any = None
    context: Context = field(init=False)
    site: Site | None = field(init=False)
    _key: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.site = user_site(3)
        self.context = host_context()
        kept = tuple([(i, id(v)) for i, v in self.static.items()])
        own = self.fun if isinstance(self.fun, Quoted) else id(self.fun)
        given = self.out_tree, self.method, self.local, self.device
        self._key = (own, self.kind, self.in_tree, kept, *given, self.context.key)

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Callback and self._key == other._key  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return name_of(self.fun)

    @property
    def title(self) -> str:
        """`pure_callback of f, called at file.py:3 (main)`, for messages."""
        return f"{self.kind} of {self}, called at {describe(self.site)}"

    def __call__(self, values: Values, results: Types) -> list[np.ndarray]:
        """Calls the function with arrays, on the host or not; returns host arrays."""
        with self.context.entered():
            new_array = eval_trace().new_array
            given = iter([new_array(v) if isinstance(v, np.ndarray) else v for v in values])
            count = self.in_tree.num_leaves
            leaves = [self.static[i] if i in self.static else next(given) for i in range(count)]
            args, kwargs = self.in_tree.unflatten(leaves)
            found = self.fun(*args, **kwargs)
            return [] if self.out_tree is None else self._checked(found, results)

    def _checked(self, found: Any, results: Types) -> list[np.ndarray]:
        leaves, tree = flatten(found)
        if len(leaves) != len(results):
            raise TypeError(
                f"{self.title}: the function returned the pytree {_tree_text(tree)}; "
                f"result_shape_dtypes is {_tree_text(self.out_tree)}. They must have equally many "
                "leaves."
            )
        return [
            self._host(x, t, found, i) for i, (x, t) in enumerate(zip(leaves, results, strict=True))
        ]

    def _host(self, x: Any, t: ArrayType, found: Any, i: int) -> np.ndarray:
        """One result as a host array of exactly the expected type."""
        if isinstance(x, _PLAIN) and not isinstance(x, np.generic) and not t.shape and _fits(x, t):
            return np.asarray(x, t.dtype)
        value = np.asarray(x)
        if value.shape != t.shape or canonicalize(value.dtype) != t.dtype:
            path = "".join(map(str, flatten_with_path(found)[0][i][0]))
            got = array_type(value.shape, value.dtype).str_short(True)
            raise TypeError(
                f"{self.title}: the function returned {got}{path and ' at ' + path}; "
                f"result_shape_dtypes specifies {t.str_short(True)}."
            )
        return np.asarray(value, t.dtype, order="C")


_PLAIN = (bool, int, float, complex)


def _fits(x: Any, t: ArrayType) -> bool:
    """Whether a Python scalar is of the type's kind, or of a narrower one."""
    return np.result_type(x, t.dtype) == t.dtype


def _tree_text(tree: Any) -> str:
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


class Quoted:
    """Base of functions that are equal if they were made from equal ones."""


def host_context() -> Context:
    """The context in which a host function runs: the current flags, and no transforms.

    Its arrays are on the CPU, regardless of the device that waits for it.
    """
    flags = current().flags | {"default_device": "cpu"}
    return Context(eval_trace(), None, (), flags)


@dataclass(frozen=True, slots=True)
class Looped:
    """A callback over batched values: called for each element, in order.

    size, marks: the size of the batch dimension, and which values have it.
    """

    inner: Any
    size: int
    marks: tuple[bool, ...]

    title = property(lambda self: self.inner.title)
    local = False  # calls of each device are not batched
    device = property(lambda self: self.inner.device)
    method = property(lambda self: self.inner.method)

    def __repr__(self) -> str:
        return f"{self.inner!r} for each of {self.size}"

    def __call__(self, values: Values, results: Types) -> list[np.ndarray]:
        types = [t.update(shape=t.shape[1:]) for t in results]
        pairs = [(np.asarray(v) if m else v, m) for v, m in zip(values, self.marks, strict=True)]
        rows = [
            self.inner([np.asarray(v[i]) if m else v for v, m in pairs], types)
            for i in range(self.size)
        ]
        return [
            np.stack([row[k] for row in rows]) if rows else np.empty(t.shape, t.dtype)
            for k, t in enumerate(results)
        ]


@dataclass(frozen=True, slots=True)
class HostFunction:
    """The target of a compiled program's call: a callback with the types of its results.

    token: whether the first operand and result is a token of ordered effects.
    """

    callback: Any
    results: tuple[ArrayType, ...]
    token: bool

    title = property(lambda self: self.callback.title)

    def __call__(self, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        outs = self.callback(values[self.token :], self.results)
        return (values[0] + np.int32(1), *outs) if self.token else tuple(outs)

    def blank(self, turn: int) -> tuple[np.ndarray, ...]:
        """Results of a failed call: 0, 1, and the limits of the dtype, depending on `turn`."""
        outs = tuple([np.full(t.shape, _blanks(t.dtype)[turn % 4], t.dtype) for t in self.results])
        return (np.zeros((), np.int32), *outs) if self.token else outs


def _blanks(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    if is_bool(dtype):
        return False, True, True, False
    if is_inexact(dtype):
        return 0, 1, np.inf, -np.inf
    return 0, 1, iinfo(dtype).max, iinfo(dtype).min


def host_functions(program: Program) -> dict[HostFunction, int]:
    """The functions that a program calls, including nested programs, with their numbers."""
    found: dict[HostFunction, int] = {}
    for eqn in walk(program):
        if eqn.op.host is not None:
            found.setdefault(eqn.op.host(eqn.op, **eqn.params), len(found))
    return found


def calls_of(program: Program) -> tuple[HostFunction, ...]:
    """The functions that the text of a lowered program calls, by number."""
    return (*host_functions(program), *program.derived.get(EMITTED, ()))


EMITTED = ("functions that lowering rules call",)  # in `Program.derived`


# -- rules --


def _type(
    op: Op, *types: ArrayType, callback: Any, results: Any, token: bool
) -> tuple[ArrayType, ...]:
    return (TOKEN, *results) if token else results


def _dims(op: Op, *types: ArrayType, callback: Any, results: Any, token: bool) -> Dims:
    """No dimension of a result corresponds to any other: results are replicated."""
    outs = _type(op, callback=callback, results=results, token=token)
    sizes = [t.ndim for t in (*types, *outs)]
    names = iter(letters(sum(sizes)))
    rows = [tuple([next(names) for _ in range(n)]) for n in sizes]
    return Dims(tuple(rows[: len(types)]), tuple(rows[len(types) :]))


def _eager(op: Op, args: Values, params: dict[str, Any]) -> list[Any]:
    callback, host = params["callback"], eval_trace()
    arrays = host.arrays(args)
    if not all(a.sharding.is_fully_addressable for a in arrays):
        return _across_processes(op, arrays, params)
    token, arrays = arrays[: params["token"]], arrays[params["token"] :]
    outs = callback(arrays, params["results"])
    near = next((a for a in arrays if a.committed), None)
    if near is None:
        return [*token, *[host.new_array(x) for x in outs]]
    return [*token, *[host.place_like(x, near) for x in outs]]


def _across_processes(op: Op, args: Values, params: dict[str, Any]) -> list[Any]:
    """Calls through a program, as under `jit`: in one of the processes that hold the arguments."""
    ins, outs = [Var(type_of(a)) for a in args], [Var(t) for t in _type(op, **params)]
    called = Equation(op, ins, outs, params, user_site(3))
    return eval_trace().run(Program(ins, outs, [called], name=op.name), args)


def _enter(op: Op, inside: Any, state: list[Any], args: list[Any], **p: Any) -> Entered:
    """The token orders the call: it is the first operand and result."""
    outs = op(*state, *args, **p | {"token": True})
    return outs[1:], outs[:1]


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, callback: Any, results: Any, token: bool
) -> list[str]:
    function = _host(op, callback, results, token)
    return e.host_call(function, ins, outs, xs, pure=not op.effects)


def _host(op: Op, callback: Any, results: Any, token: bool) -> HostFunction:
    return HostFunction(callback, results, token)


def _pass_by(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[list[Any], list[Any]]:
    return op(*primals, **p), []


def _reject_derivative(op: Op, *args: Any, callback: Any, **p: Any) -> NoReturn:
    raise ValueError(
        f"{callback.title}: it has no derivative, as the function is "
        "opaque. Define one: wrap the call in a function with `custom_jvp` or `custom_vjp`. Or "
        "use `shardwise.lax.stop_gradient` on its arguments."
    )


def _looped(
    op: Op, mapped: Any, args: Any, dims: Any, *, callback: Any, results: Any, token: bool
) -> tuple[list[Any], list[Any]]:
    marks = tuple([d is not None for d in dims])
    moved = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    if callback.local:  # devices have shards of the elements, not some elements each
        for i in range(mapped.size):
            row = [x[i] if m else x for x, m in zip(moved, marks, strict=True)]
            op(*row, callback=callback, results=results, token=token)
        return [], []
    looped = Looped(callback, mapped.size, marks)
    return _bound(op, moved, mapped.size, looped, results, token)


def _bound(
    op: Op, args: Values, size: int, callback: Any, results: Types, token: bool
) -> tuple[list[Any], list[Any]]:
    """One call for all elements of a batch, and the dimensions of its results."""
    batched = tuple([t.update(shape=(size, *t.shape)) for t in results])
    outs = op(*args, callback=callback, results=batched, token=token)
    return outs, [0] * len(outs)


def _reject_batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, callback: Any, **p: Any
) -> NoReturn:
    raise ValueError(
        f"{callback.title}: it is ordered, and calls for the elements of a batch have no order: it "
        "cannot be used under vmap. Use ordered=False, or `shardwise.lax.map` in place of vmap."
    )


METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def _batch_pure(
    op: Op, mapped: Any, args: Any, dims: Any, *, callback: Any, results: Any, token: bool
) -> tuple[list[Any], list[Any]]:
    method = callback.method
    if method is None:
        raise NotImplementedError(
            f"{callback.title}: it cannot be used under vmap, as vmap_method is None. Pass one of "
            f"{', '.join(map(repr, METHODS))} to `pure_callback`: 'sequential' calls the function "
            "for each element; with the others it gets whole batches."
        )
    if method.startswith("sequential"):
        return _looped(op, mapped, args, dims, callback=callback, results=results, token=token)
    moved = [_arranged(a, d, method, mapped.size) for a, d in zip(args, dims, strict=True)]
    return _bound(op, moved, mapped.size, callback, results, token)


def _arranged(x: Any, dim: int | None, method: str, size: int) -> Any:
    """An operand for a function that takes batches: the batch dimension first."""
    if dim is not None or method == "broadcast_all":
        return to_dim(x, dim, 0, size)
    return to_dim(x, None, 0, 1) if method == "expand_dims" else x


@public("shardwise.debug")
class DebugEffect:
    """The effect of `debug.print` and similar functions on a program. All are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return type(self).__name__.removesuffix("Effect")


@public("shardwise.debug")
class OrderedDebugEffect(DebugEffect):
    """The same effect, with `ordered=True`."""


def _record(name: str, effects: tuple[Any, ...], jvp: Callable, batch: Callable) -> Op:
    """Makes one of the ops."""
    return Op(
        name,
        host=_host,
        user_code=True,
        elements=Elements.MOVED,
        is_expensive=True,
        type_rule=_type,
        dims=_dims,
        lower=_lower,
        jvp=jvp,
        transpose=_reject_derivative,
        batch=batch,
        eager=_eager,
        enter=_enter,
        multiple=True,
        effects=frozenset(effects),
    )


_IN_ORDER = (CALLBACK, ORDERED)
pure_callback = _record("pure_callback", (), _reject_derivative, _batch_pure)
io_callback = _record("io_callback", (CALLBACK, IO), _reject_derivative, _looped)
ordered_io_callback = _record(
    "ordered_io_callback", (*_IN_ORDER, IO), _reject_derivative, _reject_batch
)
debug_callback = _record("debug_callback", (CALLBACK, DebugEffect()), _pass_by, _looped)
ordered_debug_callback = _record(
    "ordered_debug_callback", (*_IN_ORDER, OrderedDebugEffect()), _pass_by, _looped
)


def bind(op: Op, values: Values, callback: Callback, results: Types = ()) -> list[Any]:
    """Binds an op of this module."""
    for x in values:
        type_of(x)  # raises
    return op(*values, callback=callback, results=tuple(results), token=False)
