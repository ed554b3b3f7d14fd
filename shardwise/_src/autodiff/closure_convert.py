"""Functions bundled with the arrays that they need.

Each is a container of these arrays, so that a jitted function can take it and return it:

    step = jit(lambda x: vjp(f, x)[1])      # returns the function that maps cotangents backwards
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise._src.arguments.partial_container import Partial
from shardwise._src.autodiff.ref_gradients import check_like
from shardwise._src.core.program import Program
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.refs.ref_functions import addupdate
from shardwise._src.refs.refs import is_ref, put, value_of
from shardwise._src.runtime.pytree import flatten, register_node
from shardwise._src.transforms.linearize import LinearFunction
from shardwise._src.transforms.transpose import COLLECTS, collecting_logs
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0, is_inexact

Refs = tuple[tuple[int, str, ArrayType], ...]  # number, path and type of leaves that are refs


@dataclass(slots=True, eq=False)
class Closure:
    """`func(values, *args)` as a function of `args`, with the attributes of a `Partial`."""

    func: Callable[..., Any]
    values: Sequence[Any]

    @property
    def args(self) -> tuple[Sequence[Any]]:
        return (self.values,)

    @property
    def keywords(self) -> dict[str, Any]:
        return {}

    def __call__(self, *args: Any) -> Any:
        return self.func(self.values, *args)

    def __repr__(self) -> str:
        return f"<{name_of(self.func)} with {len(self.values)} arrays>"


class _Marker:
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class NotNeeded(_Marker):
    """Marks an argument in `VJP.args_res` that the derivative does not need."""


class GradRef(_Marker):
    """Marks a cotangent that was added to a ref; see `VJP.with_refs`."""


class GradValue(_Marker):
    """Requests a cotangent as a value from `VJP.with_refs`."""


class DontWant(_Marker):
    """Requests no cotangent from `VJP.with_refs`."""


class DidntWant(_Marker):
    """Marks a cotangent that was not requested; see `VJP.with_refs`."""


@dataclass(slots=True, eq=False)
class VJP:
    """The function that pulls cotangents back, as returned by `vjp`.

    fun:              `fun(residuals, ct)`: the computation, as a function of the arrays it needs.
                      It binds the types of the results and the linear program.
    in_tree, out_tree: the pytrees of the primals and of the result.
    args_res:         for each primal, its needed leaves: a pytree of arrays, with `NotNeeded()` for
                      others and tuples for containers. A list: it may be emptied and refilled.
    opaque_residuals: the other arrays that are needed.
    """

    fun: functools.partial[Any]
    in_tree: Any
    out_tree: Any
    _kept: list[Any]  # leaves of `args_res`, which is created on first access
    opaque_residuals: list[Any]
    # Of each residual: whether it is a primal's leaf, and which one.
    _places: tuple[tuple[bool, int], ...]
    _types: Sequence[ArrayType]  # of the primals
    _refs: Refs  # the leaves of the primals that are refs
    want_logs: bool = False
    _args: list[Any] | None = field(default=None, init=False)

    @property
    def args_res(self) -> list[Any]:
        if self._args is None:
            found = self.in_tree.walk(lambda children, _: tuple(children), lambda x: x, self._kept)
            self._args, self._kept = list(found), []
        return self._args

    @args_res.setter
    def args_res(self, values: Sequence[Any]) -> None:
        self._args, self._kept = list(values), []

    def _leaves(self) -> list[Any]:
        if self._args is None:
            return self._kept
        return flatten(self._args, lambda x: isinstance(x, NotNeeded))[0]

    def _residuals(self) -> list[Any]:
        leaves, others = self._leaves(), self.opaque_residuals
        return [leaves[i] if own else others[i] for own, i in self._places]

    @property
    def _name(self) -> str:
        return name_of(self.fun)

    @property
    def jaxpr(self) -> Program:
        """The linear program, from tangents to tangents. Its constants are the residuals."""
        return self.fun.args[1].replace(consts=tuple(self._residuals()))

    # The attributes of a `Partial`, which JAX of 2022 to 2024 returned.
    @property
    def func(self) -> Callable[..., Any]:
        return self._pull_back

    @property
    def args(self) -> tuple[Partial]:
        return (Partial(self.fun, self._residuals()),)

    @property
    def keywords(self) -> dict[str, Any]:
        return {}

    def __call__(self, *cts: Any) -> tuple[Any, ...]:
        self._check_refs()
        return self._logged(lambda: self.fun(self._residuals(), *cts))

    def _pull_back(self, fun: Callable[..., Any], *cts: Any) -> tuple[Any, ...]:
        self._check_refs()
        return self._logged(lambda: fun(*cts))

    def _check_refs(self) -> None:
        found = next((r for r in self._refs if is_inexact(r[2].dtype)), None)
        if found is not None:
            _, path, t = found
            raise ValueError(
                f"{self._name}: {path} is a Ref{{{t.str_short(True)}}}, so its cotangent "
                "is also a ref. Pass one for each primal to `with_refs`, or "
                "`shardwise.ad.GradValue()` to get the cotangent as a value, or "
                "`shardwise.ad.DontWant()`, and call the function that it returns."
            )

    @property
    def with_logs(self) -> VJP:
        """The same function, but it returns a pair with a dict of what backward rules log.

        These are rules of `custom_vjp.defvjp_with_logs`. Inside of a `scan`, the logs of all steps
        are stacked. Of equal names, the entry of the first call in the function is returned.
        """
        parts, meta = _parts(self)
        return _whole((*meta[:-1], True), parts)

    def _logged(self, run: Callable[[], Any]) -> Any:
        if not self.want_logs:
            return run()
        with COLLECTS(True), collecting_logs() as logs:
            found = run()
        return found, logs

    def with_refs(self, *ct_refs: Any) -> Callable[[Any], tuple[Any, ...]]:
        """The function that adds cotangents to refs.

        ct_refs: as many as there are primals and in their pytrees: a ref to which the cotangent is
            added, `DontWant()` for no cotangent, or anything else, such as `GradValue()`, to return
            the cotangent. For a primal that is a ref: a ref which contains the cotangent of its
            last value, and afterwards the cotangent of its initial value.

        The returned cotangents have `GradRef()` where there is a ref. Raises ValueError for another
        pytree, or a ref that does not have the type of its primal; TypeError for a primal that is a
        ref without a matching ref in `ct_refs`.
        """
        wanted, tree = flatten(ct_refs)
        if tree != self.in_tree:
            raise ValueError(
                f"{self._name}: with_refs takes refs in the pytree structure of the "
                f"primals, {self.in_tree}; got {tree}."
            )
        own = self._own_refs(wanted)
        for i, (x, t) in enumerate(zip(wanted, self._types, strict=True)):
            if i not in own and is_ref(x) and is_inexact(t.dtype):
                _check_ref(self._name, path_in("refs", tree, i), x, t)

        def accumulate(ct: Any) -> tuple[Any, ...]:
            last = [None if r is None else value_of(r) for r in own.values()]
            asked = [not isinstance(x, DontWant) for x in wanted]
            marks = None if all(asked) else asked
            cts = self._logged(lambda: self.fun(self._residuals(), ct, last=last, wanted=marks))
            cts, *logs = cts if self.want_logs else (cts,)
            found = flatten(cts)[0]
            for i, ref in own.items():
                if ref is not None:
                    put(ref, found[i])
            rows = enumerate(zip(wanted, found, strict=True))
            found = tree.unflatten(
                [GradRef() if own.get(i) is not None else _added(x, c) for i, (x, c) in rows]
            )
            return (found, *logs) if logs else found

        return accumulate

    def _own_refs(self, wanted: Sequence[Any]) -> dict[int, Any]:
        """The refs for cotangents of primals that are refs; None if not requested."""
        own: dict[int, Any] = {}
        for i, path, t in self._refs:
            moves = is_inexact(t.dtype)
            if moves and not isinstance(wanted[i], DontWant):
                check_like(f"{self._name}: with_refs", t, wanted[i], lambda p=path: p)
            own[i] = wanted[i] if moves and is_ref(wanted[i]) else None
            if own[i] is not None and sum(x is own[i] for x in wanted) > 1:
                raise ValueError(
                    f"{self._name}: with_refs: {own[i].short} is passed more than once. "
                    f"The ref for {path} is overwritten: it must be a separate ref."
                )
        return own

    def __repr__(self) -> str:
        return f"<{self._name} with {len(self._places)} arrays>"


def _check_ref(what: str, path: str, ref: Any, t: ArrayType) -> None:
    found = ref.type
    if (found.shape, found.dtype) != (t.shape, t.dtype):
        raise ValueError(
            f"{what}: with_refs: {path} is {ref.short}; the cotangent has the type of the primal, "
            f"{t.strong().str_short(True)}."
        )


def _added(ref: Any, ct: Any) -> Any:
    if isinstance(ref, DontWant):
        return DidntWant()
    if not is_ref(ref):
        return ct
    if ct.dtype != float0:
        addupdate(ref, None, ct)
    return GradRef()


_NOT_NEEDED = NotNeeded()


def vjp_of(
    fun: functools.partial[Any],
    in_tree: Any,
    out_tree: Any,
    primals: Sequence[Any],
    linear: LinearFunction,
    refs: Refs,
) -> VJP:
    """The `VJP` of a linear part, some of whose residuals are leaves of the primals."""
    own = {id(x): i for i, x in enumerate(primals)}
    kept: list[Any] = [_NOT_NEEDED] * len(primals)
    opaque, places = [], []
    for r in linear.captured:
        i = own.get(id(r))
        if i is None:
            places.append((False, len(opaque)))
            opaque.append(r)
        else:
            places.append((True, i))
            kept[i] = r
    return VJP(fun, in_tree, out_tree, kept, opaque, tuple(places), tuple(linear.in_types), refs)


register_node(
    Closure, lambda c: (c.values, c.func), lambda func, values: Closure(func, tuple(values))
)
for marker in (NotNeeded, GradRef, DidntWant):
    register_node(marker, lambda _: ((), None), lambda _, children, made=marker: made())


def _parts(v: VJP) -> tuple[Any, Any]:
    meta = v.fun, v.in_tree, v.out_tree, v._places, v._types, v._refs, v.want_logs  # pyright: ignore[reportPrivateUsage] (here)
    return (v._leaves(), v.opaque_residuals), meta  # pyright: ignore[reportPrivateUsage] (here)


def _whole(meta: Any, parts: Any) -> VJP:
    fun, in_tree, out_tree, *rest = meta
    kept, opaque_residuals = parts
    return VJP(fun, in_tree, out_tree, kept, opaque_residuals, *rest)


register_node(VJP, _parts, _whole)
