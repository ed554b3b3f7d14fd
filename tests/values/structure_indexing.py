"""Families that read and write at run-time positions: gather, scatter, sort."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.values.structure import Case, Input
from tests.values.structure_cases import FLOAT, INT, Draw, family

SIZES = (1, 2, 3, 4, 5, 8, 9)


def places(draw: Draw, size: int, shape: tuple[int, ...], far: int = 3) -> Input:
    """Indices into a dimension, negative ones and some beyond both ends among them."""
    return Input(shape, "", INT, f"{-size - far}:{size + far - 1}")


@family
def gathers() -> Iterator[Case]:
    draw = Draw("gathers")
    for _ in range(350):
        shape, ndim = tuple(draw.of(SIZES) for _ in range(2)), draw.of((0, 1, 1, 2))
        axis, mode = draw.of((0, 1)), draw.of(("clip", "fill", "wrap"))
        at = places(draw, shape[axis], tuple(draw.of((0, 1, 3, 4, 6)) for _ in range(ndim)))
        wanted = f"taken(a, b, {axis}, {mode!r})"
        text = f"jnp.take(a, b, axis={axis}, mode={mode!r})"
        yield draw.case(text, [shape, at], ndim + 1, wanted)
    for _ in range(300):
        shape, count = tuple(draw.of(SIZES) for _ in range(3)), draw.of((1, 2, 4, 5))
        rows, columns = (Input((count,), "", INT, f"{-n}:{n - 1}") for n in shape[:2])
        text, ndim = draw.of(
            [
                ("a[b]", 3),
                ("a[b, c]", 2),
                ("a[:, c]", 3),
                ("a[b, :, ::2]", 3),
                ("a[b][:, c]", 3),
                ("a[b[:, None], c]", 3),
                ("a[:, c, ::-1]", 3),
            ]
        )
        yield draw.case(
            text, [Input(shape, "", draw.of((FLOAT, INT, "bool"))), rows, columns], ndim, text
        )
    for _ in range(200):
        shape, axis = [draw.of(SIZES) for _ in range(2)], draw.of((0, 1))
        part = [draw.of((1, 2, 4)) if d == axis else n for d, n in enumerate(shape)]
        at = Input(tuple(part), "", INT, f"{-shape[axis]}:{shape[axis] - 1}")
        text = f"take_along_axis(a, b, {axis})"
        yield draw.case(f"jnp.{text}", [tuple(shape), at], 2, f"np.{text}")
    for _ in range(200):
        size, window, count = draw.of(((8, 3), (5, 2), (4, 4), (9, 1))) + (draw.of((1, 3, 4)),)
        mode = draw.of(("clip", "fill"))
        at = Input((count, 1), "", INT, f"-3:{size + 2}")
        numbers = "lax.GatherDimensionNumbers((1, 2), (), (0,))"
        yield draw.case(
            f"lax.gather(a, b, {numbers}, ({window}, 2), mode={mode!r})",
            [(size, 2), at],
            3,
            f"windows(a, b, {window}, {mode!r})",
        )
    for _ in range(60):
        text = draw.of(
            [
                "choose(b, [a, a + 1, a * 2, a], mode='clip')",
                "where(b > 0, a, a[::-1])",
                "select([b > 1, b < 0], [a, -a], 5)",
                "extract(b > 0, a, size=5)",
                "compress(b > 0, a, size=6)",
            ]
        )
        size = draw.of((4, 5, 8))
        wanted = "" if "size" in text else f"np.{text}"
        yield draw.case(f"jnp.{text}", [(size,), Input((size,), "", INT, "-3:5")], 1, wanted)


WRITES = ("set", "add", "subtract", "multiply", "min", "max")


@family
def scatters() -> Iterator[Case]:
    """Repeated indices too, except for `set`, where it is undefined which value remains."""
    draw = Draw("scatters")
    for method, mode in itertools.product(WRITES, ("drop", "clip")):
        for _ in range(24):
            size, count = draw.of(SIZES), draw.of((1, 3, 4, 6))
            ndim, dtype = draw.of((1, 2)), draw.of((FLOAT, FLOAT, INT, "uint8", "bfloat16"))
            shape = (size, draw.of((1, 2, 4, 5)))[:ndim]
            values = Input((count, *shape[1:]), "", dtype, "small")
            if method == "set":
                values = Input((), "", dtype, "small")
            data = [Input(shape, "", dtype, "small"), places(draw, size, (count,)), values]
            yield draw.case(
                f"a.at[b].{method}(c, mode={mode!r})",
                data,
                ndim,
                f"written(a, b, c, {method!r}, {mode!r})",
            )
    for method in WRITES:
        for _ in range(30):
            shape, count = (draw.of(SIZES), draw.of(SIZES)), draw.of((1, 3, 4))
            one = () if method == "set" else (count,)
            at = [Input((count,), "", INT, f"{-n}:{n - 1}") for n in shape]
            text = f"a.at[b, c].{method}(d)"
            yield draw.case(
                text,
                [Input(shape, "", FLOAT, "small"), *at, Input(one, "", FLOAT, "small")],
                2,
                f"written(a, (b, c), d, {method!r}, 'drop')",
            )
    for _ in range(150):
        rows, size, count = draw.of(SIZES), draw.of(SIZES), draw.of((1, 2, 4))
        method, at = draw.of(WRITES[1:]), Input((count,), "", INT, f"0:{size - 1}")
        yield draw.case(
            f"a.at[:, b].{method}(c)",
            [Input((rows, size), "", FLOAT, "small"), at, Input((rows, count), "", FLOAT, "small")],
            2,
            f"written(a.T, b, c.T, {method!r}, 'drop').T",
        )
    for _ in range(80):
        shape, axis = [draw.of(SIZES) for _ in range(2)], draw.of((0, 1))
        at = Input(
            tuple(1 if d == axis else n for d, n in enumerate(shape)),
            "",
            INT,
            f"0:{shape[axis] - 1}",
        )
        yield draw.case(
            f"jnp.put_along_axis(a, b, 7, {axis}, inplace=False)",
            [tuple(shape), at],
            2,
            f"put_along(a, b, 7, {axis})",
        )
    for _ in range(120):
        size, count = draw.of((3, 4, 8)), draw.of((4, 5, 8))
        method = draw.of(("sum", "max", "min", "prod"))
        how = {"sum": "add", "max": "max", "min": "min", "prod": "multiply"}[method]
        start = {"sum": 0, "max": "-np.inf", "min": "np.inf", "prod": 1}[method]
        yield draw.case(
            f"sw.ops.segment_{method}(a, b, num_segments={size})",
            [Input((count,), "", FLOAT, "small"), Input((count,), "", INT, "0:7")],
            1,
            f"written(np.full({size}, {start}, a.dtype), b, a, {how!r}, 'drop')",
        )
    for _ in range(80):
        size, window, count = draw.of(((8, 3), (5, 2), (9, 1))) + (draw.of((1, 3, 4)),)
        numbers = "lax.ScatterDimensionNumbers((1,), (), (0,))"
        data = [
            Input((size,), "", FLOAT, "small"),
            Input((count, 1), "", INT, f"-2:{size}"),
            Input((count, window), "", FLOAT, "small"),
        ]
        yield draw.case(
            f"lax.scatter_add(a, b, c, {numbers}, mode='drop')", data, 1, "windows_added(a, b, c)"
        )


SORTED = (
    ("jnp.sort(a, axis=AXIS)", "np.sort(a, axis=AXIS)"),
    ("jnp.sort(a, axis=AXIS, descending=True)", ""),
    ("jnp.argsort(a, axis=AXIS)", "np.argsort(a, axis=AXIS, kind='stable')"),
    ("jnp.argsort(a, axis=AXIS, descending=True)", ""),
    ("jnp.partition(a, -1, axis=AXIS)", ""),
    ("lax.sort((a, a[::-1]), dimension=AXIS, num_keys=2)", ""),
    ("lax.sort(a, dimension=AXIS)", ""),
    ("lax.cummax(a, axis=AXIS)", "np.maximum.accumulate(a, axis=AXIS)"),
    ("jnp.median(a, axis=AXIS)", ""),
    ("jnp.quantile(a, 0.3, axis=AXIS)", ""),
    ("jnp.nanmedian(a, axis=AXIS)", ""),
)
LISTED = (
    ("jnp.searchsorted(jnp.sort(a), b)", "np.searchsorted(np.sort(a), b)"),
    ("jnp.digitize(b, jnp.sort(a))", "np.digitize(b, np.sort(a))"),
    ("jnp.unique(b, size=4)", ""),
    ("jnp.nonzero(b, size=5)[0]", ""),
    ("jnp.argwhere(b, size=3)", ""),
    ("jnp.bincount(b + 9, length=12)", ""),
    ("jnp.histogram(b, bins=4, range=(-4, 4))[0]", "np.histogram(b, bins=4, range=(-4, 4))[0]"),
    ("jnp.isin(a, b)", "np.isin(a, b)"),
    ("jnp.lexsort((a, b))", "np.lexsort((a, b))"),
    ("jnp.union1d(a, b, size=6)", ""),
    ("jnp.intersect1d(a, b, size=3)", ""),
    ("jnp.setdiff1d(a, b, size=3)", ""),
)


@family
def sorts() -> Iterator[Case]:
    draw = Draw("sorts")
    for (program, with_numpy), axis in itertools.product(SORTED, (0, 1)):
        for _ in range(26):
            wanted = with_numpy
            shape = draw.of((1, 2, 3, 5, 8)), draw.of((2, 4, 5, 8))
            dtype = draw.of((FLOAT, FLOAT, INT, "bfloat16", "uint8"))
            if "cummax" in program or "median" in program or "quantile" in program:
                dtype = FLOAT
            tuples = 2 if program.startswith("lax.sort((") else 1
            reduced = "median" in program or "quantile" in program
            rank = 2 - reduced
            if dtype == "bfloat16":  # where NumPy orders NaN differently
                wanted = ""
            yield draw.case(
                program.replace("AXIS", str(axis)),
                [Input(shape, "", dtype)],
                [rank] * tuples,
                wanted.replace("AXIS", str(axis)),
                1e-6 if reduced else 0.0,
            )
    for _ in range(200):
        shape, k = (draw.of((1, 3, 4)), draw.of((4, 5, 8))), draw.number(1, 4)
        yield draw.case(f"lax.top_k(a, {k})", [Input(shape, "", draw.of((FLOAT, INT)))], [2, 2])
    for program, wanted in LISTED:
        for _ in range(12):
            size = draw.of((4, 5, 8))
            ndim = 2 if "argwhere" in program else 1
            yield draw.case(
                program,
                [Input((size,), "", FLOAT, "small"), Input((size,), "", INT, "small")],
                ndim,
                wanted,
            )
