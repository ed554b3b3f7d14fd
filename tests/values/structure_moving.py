"""Families that move elements: pad, slices, concatenations, functions of these, reshapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.values.structure import Case, Input
from tests.values.structure_cases import DTYPES, FLOAT, INT, SIZES, Draw, family, index


def padded(size: int, low: int, high: int, interior: int) -> int:
    return low + high + size + max(size - 1, 0) * interior


def amounts(draw: Draw, size: int) -> tuple[int, int, int]:
    """Amounts of `pad` in a dimension such that the result has a size of at least 0."""
    while True:
        found = draw.number(-3, 4), draw.number(-3, 4), draw.number(0, 3)
        if padded(size, *found) >= 0:
            return found


def pad_case(draw: Draw, shape: tuple[int, ...], config: list[tuple[int, int, int]]) -> Case:
    text = f"pad(a, np.array(1, a.dtype), {config})"
    return draw.case(f"lax.{text}", [Input(shape, "", draw.of(DTYPES))], len(shape), text)


@family
def pad() -> Iterator[Case]:
    draw = Draw("pad")
    for size, *config in itertools.product(SIZES, (-2, -1, 0, 1, 3), (-2, -1, 0, 2), (0, 1, 2)):
        if padded(size, *config) >= 0:
            yield pad_case(draw, (size,), [tuple(config)])
            yield pad_case(draw, (size,), [tuple(config)])
    for _ in range(500):
        shape = tuple(draw.of(SIZES) for _ in range(draw.of((2, 2, 3))))
        yield pad_case(draw, shape, [amounts(draw, n) for n in shape])
    for _ in range(100):
        shape = draw.of(SIZES), 4
        config = [amounts(draw, n) for n in shape]
        text = f"pad(a, b, {config})"
        yield draw.case(f"lax.{text}", [shape, ()], 2, text)


MODES = (
    "constant",
    "edge",
    "reflect",
    "symmetric",
    "wrap",
    "linear_ramp",
    "mean",
    "maximum",
    "empty",
)


@family
def pad_modes() -> Iterator[Case]:
    draw = Draw("pad modes")
    for _ in range(350):
        shape = tuple(draw.of((1, 2, 4, 5, 8, 9)) for _ in range(draw.of((1, 2))))
        mode = draw.of(MODES[:-1])
        width = [(draw.number(0, 5), draw.number(0, 5)) for _ in shape]
        text = f'pad(a, {width}, "{mode}")'
        yield draw.case(
            f"jnp.{text}",
            [Input(shape, "", FLOAT, "small")],
            len(shape),
            f"np.{text}",
            1e-6 if mode in ("linear_ramp", "mean") else 0.0,
        )


def cut(draw: Draw, size: int) -> str:
    """A slice of a dimension, as text."""
    start = draw.of(["", draw.number(-size - 1, size + 1)])
    stop = draw.of(["", draw.number(-2, size + 2)])
    return f"{start}:{stop}:{draw.of((1, 1, 2, 3, 4, -1, -2, -3))}"


@family
def slices() -> Iterator[Case]:
    draw = Draw("slices")
    for size, start, less, stride in itertools.product(
        (1, 2, 4, 5, 8, 9, 16), (0, 1, 3), (0, 1, 2), (1, 2, 3, 5)
    ):
        if start + less <= size:
            stop = size - less
            yield draw.case(
                f"lax.slice(a, ({start},), ({stop},), ({stride},))",
                [Input((size,), "", draw.of(DTYPES))],
                1,
                f"a[{start}:{stop}:{stride}]",
            )
    for _ in range(700):
        shape = tuple(draw.of((*SIZES, 12)) for _ in range(draw.of((1, 2, 2, 3))))
        text = f"a[{', '.join(cut(draw, n) for n in shape)}]"
        yield draw.case(text, [Input(shape, "", draw.of(DTYPES))], len(shape), text)


@family
def dynamic_slices() -> Iterator[Case]:
    draw = Draw("dynamic slices")
    for size, part in [(1, 1), (2, 1), (4, 2), (5, 3), (8, 3), (8, 8), (9, 0), (3, 2)]:
        for start in (-size - 2, -2, -1, 0, 1, size - part, size - 1, size, size + 3):
            text = f"dynamic_slice(a, (b,), ({part},))"
            yield draw.case(f"lax.{text}", [(size,), index(start)], 1, text)
            text = f"dynamic_slice(a, ({start},), ({part},))"
            yield draw.case(f"lax.{text}", [Input((size,), "", INT)], 1, text)
    for _ in range(400):
        shape = draw.of(SIZES), draw.of(SIZES)
        part = tuple(draw.number(0, n) for n in shape)
        kind = draw.of([INT, "int8"])
        starts = [index(draw.number(-n - 2, n + 2), kind) for n in shape]
        text = f"dynamic_slice(a, (b, c), {part})"
        yield draw.case(f"lax.{text}", [shape, *starts], 2, text)
    for _ in range(150):
        size, part = draw.of(((4, 2), (5, 3), (8, 3), (9, 1)))
        rows = draw.of((1, 3, 4, 8))
        yield draw.case(
            f"sw.vmap(lambda r, s: lax.dynamic_slice(r, (s,), ({part},)))(a, b)",
            [(rows, size), Input((rows,), "", INT, f"{-size}:{size}")],
            2,
            f"np.stack([dynamic_slice(r, (s,), ({part},)) for r, s in zip(a, b)])",
        )


@family
def updates() -> Iterator[Case]:
    """dynamic_update_slice."""
    draw = Draw("updates")
    for size, part in [(1, 1), (2, 1), (4, 2), (5, 3), (8, 3), (8, 8), (9, 0), (3, 2), (16, 5)]:
        for start in (-size - 2, -2, -1, 0, 1, size - part, size - 1, size, size + 3):
            for place, more in [("c", [index(start)]), (str(start), [])]:
                text = f"dynamic_update_slice(a, b, ({place},))"
                yield draw.case(f"lax.{text}", [(size,), (part,), *more], 1, text)
    for _ in range(400):
        shape = draw.of(SIZES), draw.of(SIZES)
        part = tuple(draw.number(0, n) for n in shape)
        starts = [index(draw.number(-n - 2, n + 2)) for n in shape]
        text = "dynamic_update_slice(a, b, (c, d))"
        dtype = draw.of(DTYPES)
        yield draw.case(
            f"lax.{text}", [Input(shape, "", dtype), Input(part, "", dtype), *starts], 2, text
        )
    for _ in range(150):
        size, part = draw.of(((4, 2), (5, 3), (8, 3), (9, 1)))
        rows = draw.of((1, 3, 4, 8))
        yield draw.case(
            "sw.vmap(lambda r, u, s: lax.dynamic_update_slice(r, u, (s,)))(a, b, c)",
            [(rows, size), (rows, part), Input((rows,), "", INT, f"{-size}:{size}")],
            2,
            "np.stack([dynamic_update_slice(r, u, (s,)) for r, u, s in zip(a, b, c)])",
        )


@family
def joins() -> Iterator[Case]:
    """concatenate and similar functions."""
    draw = Draw("joins")
    for _ in range(500):
        ndim, parts = draw.of((1, 1, 2, 2, 3)), draw.number(1, 4)
        shape, axis = [draw.of(SIZES) for _ in range(ndim)], draw.number(0, ndim - 1)
        shapes = [
            tuple(draw.of(SIZES) if d == axis else n for d, n in enumerate(shape))
            for _ in range(parts)
        ]
        dtype = draw.of(DTYPES)
        text = f"concatenate([{', '.join('abcd'[:parts])}], axis={axis})"
        yield draw.case(f"jnp.{text}", [Input(s, "", dtype) for s in shapes], ndim, f"np.{text}")
    for _ in range(150):
        shape = tuple(draw.of(SIZES) for _ in range(draw.of((1, 2))))
        text = f"stack([a, b, a], axis={draw.number(0, len(shape))})"
        yield draw.case(f"jnp.{text}", [shape, shape], len(shape) + 1, f"np.{text}")
    for _ in range(150):
        size = draw.of((1, 2, 4, 5, 8, 9))
        place = draw.number(-size, size - 1)
        text = draw.of(
            [
                f"insert(a, {place}, 7)",
                f"insert(a, [0, {place}], 3)",
                f"delete(a, {place})",
                f"delete(a, slice({place}, None, 2))",
                "append(a, a)",
                "append(a[1:], a[:1])",
            ]
        )
        yield draw.case(f"jnp.{text}", [(size,)], 1, f"np.{text}")
    for _ in range(100):
        shape = draw.of((4, 5, 8)), draw.of((2, 3, 6))
        count, axis = draw.number(2, 3), draw.number(0, 1)
        text = f"array_split(a, {count}, axis={axis})"
        yield draw.case(f"jnp.{text}", [shape], [2] * count, f"np.{text}")


MOVES = (
    "flip(a)",
    "flip(a, 0)",
    "roll(a, 1)",
    "roll(a, -3)",
    "roll(a, 20)",
    "roll(a, 1, 0)",
    "roll(a, (2, -1), (0, 0))",
    "diff(a, axis=0)",
    "diff(a, n=2, axis=0)",
    "diff(a, axis=0, prepend=0)",
    "diff(a, axis=0, append=a[:1])",
    "tile(a, 2)",
    "tile(a, (2, 3))",
    "repeat(a, 2)",
    "repeat(a, 3, axis=0)",
    "ediff1d(a)",
    "ediff1d(a, to_end=5, to_begin=3)",
    "resize(a, (3, 5))",
    "moveaxis(a, 0, -1)",
    "swapaxes(a, 0, -1)",
    "ravel(a)",
    "broadcast_to(a, (3, *a.shape))",
    "atleast_2d(a)",
    "expand_dims(a, 0)",
    "trapezoid(a, axis=0)",
    "rollaxis(a, -1)",
    "diagflat(a)",
)
FLAT = (
    "diag(a)",
    "diag(a, 1)",
    "diag(a, -2)",
    "vander(a, 3)",
    "convolve(a, a[:3])",
    'convolve(a, a[:2], "same")',
    'correlate(a, a[:3], "valid")',
    "unwrap(a)",
    "gradient(a)",
    "gradient(a, 2)",
    "interp(a, np.arange(3.0), np.array([1., 5., 2.]))",
    "cross(a[:3], a[-3:])",
    "outer(a, a)",
    "polyval(a[:3], a)",
    "array_split(a, 1)[0]",
)
SQUARE = (
    "rot90(a)",
    "rot90(a, 2)",
    "rot90(a, -1)",
    "fliplr(a)",
    "flipud(a)",
    "diag(a)",
    "diagonal(a, 1)",
    "diagonal(a, -1)",
    "trace(a)",
    "roll(a, (1, -2), (0, 1))",
    "a.T",
    "gradient(a, axis=0)",
    "gradient(a, axis=1)",
    "kron(a[:2], a[:1])",
    "vstack([a, a])",
    "hstack([a, a[:, :1]])",
    "block([[a, a[:, :1]], [a[:1], a[:1, :1]]])",
    "dstack([a, a])",
    "column_stack([a, a])",
    "tile(a, (2, 1))",
    "repeat(a, 2, axis=1)",
    "delete(a, 1, axis=0)",
    "insert(a, 1, 5, axis=1)",
    "append(a, a[:1], axis=0)",
    "transpose(a)",
    "tril(a)",
    "triu(a, 1)",
)
ROUNDED = (
    "gradient",
    "trapezoid",
    "convolve",
    "correlate",
    "unwrap",
    "interp",
    "vander",
    "polyval",
    "trace",
    "cross",
)


@family
def rearranged() -> Iterator[Case]:
    """Functions of NumPy that are made of pads, slices and concatenations."""
    draw = Draw("rearranged")
    for text, ndims in [
        *((t, (1, 2)) for t in MOVES),
        *((t, (1,)) for t in FLAT),
        *((t, (2,)) for t in SQUARE),
    ]:
        for _ in range(14):
            ndim = draw.of(ndims)
            low = 4 if ndims == (1,) else 2
            shape = tuple(max(draw.of((2, 3, 4, 5, 8, 9)), low) for _ in range(ndim))
            spoken = text if text.startswith("a.") else f"jnp.{text}"
            wanted = text if text.startswith("a.") else f"np.{text}"
            out = ranks(wanted, shape)
            close = 1e-5 if text.startswith(ROUNDED) else 0.0
            holds = "small" if close else "special"
            yield draw.case(spoken, [Input(shape, "", FLOAT, holds)], out, wanted, close)
    for _ in range(60):
        shape, axis = (draw.of((4, 5, 8)), draw.of((1, 3, 8))), draw.number(0, 1)
        yield draw.case(
            f"jnp.roll(a, b, {axis})",
            [shape, index(draw.number(-9, 9))],
            2,
            f"np.roll(a, int(b), {axis})",
        )
    for _ in range(60):
        size, total = draw.of((3, 4, 5, 8)), 12
        yield draw.case(
            f"jnp.repeat(a, b, total_repeat_length={total})",
            [(size,), Input((size,), "", INT, "0:4")],
            1,
            f"repeat_to(a, b, {total})",
        )


def ranks(wanted: str, shape: tuple[int, ...]) -> int:
    """The rank of a result, by NumPy."""
    import numpy as np

    return np.ndim(eval(wanted, {"np": np, "a": np.ones(shape, np.float32)}))


def divisions(size: int, ndim: int) -> Iterator[tuple[int, ...]]:
    """All shapes of this size and rank."""
    if ndim == 1:
        yield (size,)
        return
    for n in range(1, size + 1):
        if size % n == 0:
            yield from ((n, *rest) for rest in divisions(size // n, ndim - 1))


@family
def reshapes() -> Iterator[Case]:
    draw = Draw("reshapes")
    known = [
        ((8, 1, 2), (4, 4)),
        ((8, 1, 2), (2, 8)),
        ((10, 1, 3), (5, 6)),
        ((1, 8, 2), (4, 1, 4)),
        ((6, 1, 4), (4, 1, 6)),
        ((8, 1, 1, 2), (4, 4)),
        ((2, 8), (8, 1, 2)),
    ]
    for old, new in known * 12:
        yield reshape_case(draw, old, new)
    for _ in range(1000):
        size = draw.of((0, 1, 6, 8, 12, 16, 24, 30))
        old, new = (
            draw.of(divisions(size, draw.number(1, 4)))
            if size
            else draw.of([(0,), (0, 3), (2, 0), (4, 1, 0), (0, 5, 1)])
            for _ in range(2)
        )
        yield reshape_case(draw, old, new)
    for _ in range(100):
        old, new = draw.of([((4, 6), (6, 4)), ((2, 3, 4), (4, 6)), ((5, 4), (2, 10))])
        yield draw.case(
            f"jnp.transpose(a).reshape({new}) + 0",
            [Input(old, "", INT)],
            len(new),
            f"np.transpose(a).reshape({new})",
        )
    for _ in range(100):
        size = draw.of((3, 4, 6, 8))
        yield draw.case(
            'a.view("uint8")',
            [Input((size,), "", draw.of((FLOAT, "int16")), "small")],
            1,
            'a.view("uint8")',
        )


def reshape_case(draw: Draw, old: tuple[int, ...], new: tuple[int, ...]) -> Case:
    return draw.case(
        f"a.reshape({new})", [Input(old, "", draw.of(DTYPES))], len(new), f"a.reshape({new})"
    )


def steps(draw: Draw, ndim: int) -> list[str]:
    """The expressions of a value V of this rank, as text."""
    more = ", ".join(
        [f"({draw.number(-2, 2)}, {draw.number(-1, 3)}, {draw.number(0, 2)})"]
        + ["(0, 0, 0)"] * (ndim - 1)
    )
    at = ", ".join(draw.some(("b", "c"), ndim))
    return [
        f"lax.pad(V, np.float32(0), [{more}])",
        "V[::-1]",
        f"V[{cut(draw, 5)}]",
        f"lax.dynamic_slice(V, ({at},), SIZES)",
        f"lax.dynamic_slice(V, ({at},), SIZES)",
        f"lax.dynamic_update_slice(V, V[:1] * 2, ({at},))",
        f"jnp.roll(V, {draw.number(-3, 3)})",
        "jnp.concatenate([V, V[:2]])",
        "jnp.ravel(V)",
        "V.T",
        "jnp.repeat(V, 2, axis=0)",
        "at(V, 'PLACE')",
    ]


@family
def chains() -> Iterator[Case]:
    """Several in a row, which XLA makes one."""
    import numpy as np

    from tests.values import structure_numpy

    draw = Draw("chains")
    for _ in range(500):
        shape = tuple(draw.of((4, 5, 8, 9)) for _ in range(draw.of((1, 1, 2))))
        inputs = [Input(shape), index(draw.number(-7, 9)), index(draw.number(-3, 9))]
        text, value = "a", np.zeros(shape, np.float32)
        for _ in range(draw.number(2, 4)):
            sizes = tuple(max(1, n - draw.number(0, 3)) for n in value.shape)
            step = draw.of(steps(draw, value.ndim)).replace("SIZES", str(sizes))
            step = step.replace("PLACE", draw.of(("x", "-")) + ",-" * (value.ndim - 1))
            names = {**vars(structure_numpy), "V": value, "b": np.int32(0), "c": np.int32(0)}
            found = eval(plain(step), names)
            if found.size:
                text, value = step.replace("V", text), found
        yield draw.case(text, inputs, value.ndim, plain(text))


def plain(text: str) -> str:
    """A program with NumPy's functions."""
    return text.replace("lax.", "").replace("jnp.", "np.")
