"""Functions of single elements, vectors or slices, applied to entire arrays.

    @partial(vectorize, signature="(n),(n)->()")
    def dot(x, y): ...

`vectorize` maps a function with `vmap` over all dimensions except those in its signature. An
argument is not mapped over a dimension that it lacks, or that has size 1 in it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.maps.vmap import vmap
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.shapes import expand_dims, squeeze
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.convert import check_ranks, common_shape

Dims = tuple[str, ...]
_TERM = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_TERMS = rf"\s*{_TERM}(?:\s*,\s*{_TERM})*\s*"


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """Turns a function of scalars, or of the shapes in `signature`, into one of broadcast arrays.

    It is mapped, not called for each element, so that its Python code runs once. Unlike in NumPy,
    results may have any shape if there is no signature: their dimensions come last.

    Args:
      pyfunc: returns arrays, or a pytree of them.
      excluded: arguments, by position or name, that are passed unchanged; so is None.
      signature: dimensions of one call, such as "(m,n),(n)->(m)". The others broadcast.

    Raises:
      ValueError: if arguments or results do not have the dimensions of the signature.
    """
    for e in excluded:
        if isinstance(e, bool) or not isinstance(e, int | str):
            raise TypeError(
                f"vectorize: excluded must contain positions and names; got {short_repr(e)}."
            )
        if isinstance(e, int) and e < 0:
            raise ValueError(f"vectorize: a position in excluded must be at least 0; got {e}.")
    terms = None if signature is None else _terms(signature)

    @functools.wraps(pyfunc)
    @hides_frames
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        places: list[int | str] = [*range(len(args)), *kwargs]
        given = {**dict(enumerate(args)), **kwargs}
        moving = [p for p in places if p not in excluded and given[p] is not None]
        if terms is None:
            by_place = dict.fromkeys(places, ())
        else:
            by_place = _paired([p for p in places if p not in excluded], terms[0], signature)
        for p in by_place.keys() - set(moving):
            if by_place[p]:
                raise ValueError(
                    f"vectorize: None is not an array with dimensions {_text(by_place[p])}."
                )

        def one(*values: Any) -> Any:
            every = given | dict(zip(moving, values, strict=True))
            out = pyfunc(*[every[i] for i in range(len(args))], **{k: every[k] for k in kwargs})
            if terms is not None:
                _check_results(out, terms[1], sizes, signature)
            return out

        arrays = [asarray(given[p]) for p in moving]
        sizes: dict[str, int] = {}
        ranks: list[int] = []
        for x, p in zip(arrays, moving, strict=True):
            core = by_place[p]
            if x.ndim < len(core):
                raise ValueError(
                    f"vectorize: an argument of shape {x.shape} lacks the dimensions "
                    f"{_text(core)} of the signature {signature!r}."
                )
            ranks.append(x.ndim - len(core))
            _note_sizes(sizes, x.shape[ranks[-1] :], core, signature)
        return over_loops(one, arrays, ranks)

    return vectorized


def over_loops(fun: Callable[..., Any], arrays: Sequence[Any], ranks: Sequence[int]) -> Any:
    """`fun` mapped over this many leading dimensions of each array, which broadcast."""
    loops = [x.shape[:n] for x, n in zip(arrays, ranks, strict=True)]
    shape = common_shape(loops) if loops else ()
    check_ranks([s for x, s in zip(arrays, loops, strict=True) if x.ndim])
    wide = [(1,) * (len(shape) - len(s)) + s for s in loops]
    xs = [
        squeeze(x, tuple([i for i, n in enumerate(s) if n == 1]))
        for x, s in zip(arrays, loops, strict=True)
    ]
    single = []
    for d in reversed(range(len(shape))):
        axes = tuple([None if s[d] == 1 else 0 for s in wide])
        if any(a == 0 for a in axes):
            fun = vmap(fun, axes)
        else:
            single.append(d)
    out = fun(*xs)
    if not single:
        return out
    leaves, tree = flatten(out)
    return tree.unflatten([expand_dims(x, tuple(single)) for x in leaves])


def _terms(signature: str) -> tuple[list[Dims], list[Dims]]:
    if not re.fullmatch(f"{_TERMS}->{_TERMS}", signature):
        raise ValueError(
            f"vectorize: {signature!r} is not a valid signature. Write dimensions as in "
            "'(m,n),(n)->(m)'."
        )
    left, right = [
        [tuple(re.findall(r"\w+", t)) for t in re.findall(_TERM, side)]
        for side in signature.split("->")
    ]
    return left, right


def _paired(
    places: Sequence[int | str], dims: Sequence[Dims], signature: str | None
) -> dict[int | str, Dims]:
    """The dimensions that a signature assigns to the argument at each position."""
    if len(places) != len(dims):
        raise TypeError(
            f"vectorize: the signature {signature!r} is for {pluralize(len(dims), 'argument')}; "
            f"got {len(places)}."
        )
    return dict(zip(places, dims, strict=True))


def _text(dims: Dims) -> str:
    return f"({','.join(dims)})"


def _note_sizes(
    sizes: dict[str, int], shape: tuple[int, ...], dims: Dims, signature: str | None
) -> None:
    for name, n in zip(dims, shape, strict=True):
        if sizes.setdefault(name, n) != n:
            raise ValueError(
                f"vectorize: dimension {name} of the signature {signature!r} has size "
                f"{sizes[name]} in one place and {n} in another."
            )


def _check_results(
    out: Any, terms: list[Dims], sizes: dict[str, int], signature: str | None
) -> None:
    if len(terms) > 1 and not isinstance(out, tuple):
        raise TypeError(
            f"vectorize: the signature {signature!r} is for a tuple of {len(terms)} results; "
            f"the function returned {short_repr(out)}."
        )
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(terms):
        raise TypeError(
            f"vectorize: the signature {signature!r} is for {pluralize(len(terms), 'result')}; the "
            f"function returned {len(outs)}."
        )
    found = dict(sizes)
    for x, dims in zip(outs, terms, strict=True):
        shape = type_of(x).shape
        if len(shape) != len(dims):
            raise ValueError(
                f"vectorize: a result of shape {shape} does not have the dimensions "
                f"{_text(dims)} of the signature {signature!r}."
            )
        _note_sizes(found, shape, dims, signature)


# -- along one axis, and over several --


@hides_frames
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any
) -> Array:
    """`func1d(vector, *args, **kwargs)` of each vector along `axis`; results replace that axis.

    The function is mapped, not called for each vector. It returns an array of any shape.
    """
    x = asarray(arr)
    axis = canonical_axis(axis, x.ndim)

    def mapped(v: Any) -> Any:
        return func1d(v, *args, **kwargs)

    for i in range(1, x.ndim - axis):  # dimensions after the axis, and after those of results
        mapped = vmap(mapped, i, -1)
    for _ in range(axis):
        mapped = vmap(mapped)
    return mapped(x)


@hides_frames
def apply_over_axes(
    func: Callable[[ArrayLike, int], Array], a: ArrayLike, axes: int | Sequence[int]
) -> Array:
    """`func(a, axis)` over one axis after another; axes that it drops are retained with size 1."""
    x = asarray(a)
    each = axes if isinstance(axes, Sequence) else (axes,)
    for axis in [canonical_axis(i, x.ndim) for i in each]:
        out = func(x, axis)
        if type_of(out).ndim == x.ndim - 1:
            out = expand_dims(out, axis)
        if type_of(out).ndim != x.ndim:
            raise ValueError(
                f"apply_over_axes: the function must keep the number of dimensions, {x.ndim}, or "
                f"remove one; it returned {type_of(out).str_short(True)}."
            )
        x = out
    return x
