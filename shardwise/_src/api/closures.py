"""Functions together with the arrays that they need.

Each is a container of these arrays, so that a jitted function can take it and return it:

    step = jit(lambda x: vjp(f, x)[1])      # gives the function that pulls cotangents back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.refs.functions import addupdate
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten, register_node
from shardwise._src.types.dtypes import float0


class Closure:
    """`run(values, *args)` as a function of `args`."""

    __slots__ = ("run", "values")

    def __init__(self, run: Callable[..., Any], values: Sequence[Any]):
        self.run = run
        self.values = values

    def __call__(self, *args: Any) -> Any:
        return self.run(self.values, *args)

    def __repr__(self) -> str:
        return f"<{self.run.__name__} with {len(self.values)} arrays>"


class NotNeeded:
    """Stands in `VJP.args_res` for an argument that the derivative does not need."""

    def __repr__(self) -> str:
        return "NotNeeded()"


class GradRef:
    """Stands among cotangents for one that was added to a ref; see `VJP.with_refs`."""

    def __repr__(self) -> str:
        return "GradRef()"


class VJP:
    """The function that pulls cotangents back, as `vjp` gives it.

    fun:              `fun(residuals, ct)`: what it does, as a function of the arrays that it needs.
    in_tree, out_tree: the trees of the primals and of the result.
    args_res:         for each primal what is needed of it: a tree of arrays, with `NotNeeded()` for
                      others and tuples for containers. A list: it may be emptied, and filled again.
    opaque_residuals: the other arrays that are needed.
    """

    __slots__ = ("fun", "in_tree", "out_tree", "opaque_residuals", "_kept", "_args", "_places")

    def __init__(
        self, fun: Callable[..., Any], in_tree: Any, out_tree: Any, kept: list[Any],
        opaque_residuals: list[Any], places: tuple[tuple[bool, int], ...],
    ):
        self.fun, self.in_tree, self.out_tree = fun, in_tree, out_tree
        self.opaque_residuals = opaque_residuals
        self._kept = kept  # leaves of `args_res`, which is made when it is first asked for
        self._args: list[Any] | None = None
        self._places = places  # of each residual: whether it is a primal's leaf, and which one

    @property
    def args_res(self) -> list[Any]:
        if self._args is None:
            found = self.in_tree.walk(lambda children, _: tuple(children), lambda x: x, self._kept)
            self._args, self._kept = list(found), []
        return self._args

    def _leaves(self) -> list[Any]:
        if self._args is None:
            return self._kept
        return flatten(self._args, lambda x: isinstance(x, NotNeeded))[0]

    def _residuals(self) -> list[Any]:
        leaves, others = self._leaves(), self.opaque_residuals
        return [leaves[i] if own else others[i] for own, i in self._places]

    def __call__(self, *cts: Any) -> tuple[Any, ...]:
        return self.fun(self._residuals(), *cts)

    def with_refs(self, *ct_refs: Any) -> Callable[[Any], tuple[Any, ...]]:
        """The function that adds cotangents to refs.

        ct_refs: as many as there are primals and in their trees: a ref where the cotangent is to be
            added to what it holds, anything else where it is to be given.

        The cotangents that it gives have `GradRef()` where there is a ref. Raises ValueError for
        another tree.
        """
        wanted, tree = flatten(ct_refs)
        if tree != self.in_tree:
            raise ValueError(
                f"{self.fun.__name__}: with_refs takes refs in the tree of the primals, "
                f"{self.in_tree}; got {tree}."
            )

        def accumulate(ct: Any) -> tuple[Any, ...]:
            found = flatten(self(ct))[0]
            return tree.unflatten(list(map(_added, wanted, found)))

        return accumulate

    def __repr__(self) -> str:
        return f"<{self.fun.__name__} with {len(self._places)} arrays>"


def _added(ref: Any, ct: Any) -> Any:
    if not is_ref(ref):
        return ct
    if ct.dtype != float0:
        addupdate(ref, None, ct)
    return GradRef()


_NOT_NEEDED = NotNeeded()


def vjp_of(
    fun: Callable[..., Any], in_tree: Any, out_tree: Any, primals: Sequence[Any],
    residuals: Sequence[Any],
) -> VJP:
    """The `VJP` of these residuals, of which some are leaves of the primals."""
    own = {id(x): i for i, x in enumerate(primals)}
    kept: list[Any] = [_NOT_NEEDED] * len(primals)
    opaque, places = [], []
    for r in residuals:
        i = own.get(id(r))
        if i is None:
            places.append((False, len(opaque)))
            opaque.append(r)
        else:
            places.append((True, i))
            kept[i] = r
    return VJP(fun, in_tree, out_tree, kept, opaque, tuple(places))


register_node(Closure, lambda c: (c.values, c.run), lambda run, values: Closure(run, tuple(values)))
register_node(NotNeeded, lambda _: ((), None), lambda _, children: NotNeeded())
register_node(GradRef, lambda _: ((), None), lambda _, children: GradRef())
def _parts(v: VJP) -> tuple[Any, Any]:
    meta = v.fun, v.in_tree, v.out_tree, v._places  # pyright: ignore[reportPrivateUsage] (here)
    return (v._leaves(), v.opaque_residuals), meta  # pyright: ignore[reportPrivateUsage] (here)


def _whole(meta: Any, parts: Any) -> VJP:
    fun, in_tree, out_tree, places = meta
    kept, opaque_residuals = parts
    return VJP(fun, in_tree, out_tree, kept, opaque_residuals, places)


register_node(VJP, _parts, _whole)
