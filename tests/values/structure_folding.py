"""Families of folds and derivatives: reductions, cumulative ops, gradients, loops, tuples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.values.structure import Case, Input
from tests.values.structure_cases import DTYPES, FLOAT, INT, SIZES, Draw, family
from tests.values.structure_moving import padded

EXACT = ("max", "min", "any", "all", "argmax", "argmin", "nanmax", "nanmin", "ptp", "count_nonzero")
SUMMED = ("sum", "prod", "mean", "nansum", "nanmean", "var", "std", "nanprod")
ONLY_OURS = (  # name of a program, in terms of AXIS
    "nn.softmax(a, axis=AXIS)",
    "nn.logsumexp(a, axis=AXIS)",
    "nn.log_softmax(a, axis=AXIS)",
    "jnp.linalg.norm(a, axis=AXIS)",
    "jnp.linalg.norm(a, np.inf, axis=AXIS)",
    "jnp.linalg.norm(a, -np.inf, axis=AXIS)",
    "jnp.linalg.norm(a, 1, axis=AXIS)",
    "lax.reduce(a, np.float32(-np.inf), lambda x, y: lax.max(x, y), (AXIS,))",
    "lax.reduce(a, np.float32(2), lambda x, y: x + y, (AXIS,))",
    "lax.reduce(a, np.float32(1), lambda x, y: lax.min(x, y), (AXIS,))",
    "nn.standardize(a, axis=AXIS)",
    "nn.softmax(a, axis=AXIS, where=a > 0)",
)


@family
def reductions() -> Iterator[Case]:
    """Of NaN, infinities and the ends of integers; over nothing at all."""
    draw = Draw("reductions")
    for name in (*EXACT, *SUMMED):
        for axis in (0, 1, None, (0, 1)):
            for _ in range(10):
                if name.startswith("arg") and isinstance(axis, tuple):
                    continue
                shape = draw.of((1, 2, 4, 5, 8, 9)), draw.of((1, 3, 4, 6))
                keep = draw.of((True, False))
                dtype = draw.of((FLOAT, FLOAT, FLOAT, INT, "bfloat16", "uint8"))
                if name in SUMMED or "nan" in name:
                    dtype = draw.of((FLOAT, INT))
                if name == "ptp" and dtype == INT:
                    dtype = FLOAT
                text = f"{name}(a, axis={axis}, keepdims={keep})"
                rank = 2 if keep else 0 if axis is None or axis == (0, 1) else 1
                holds = draw.of(("special", "special", "small"))
                wanted = f"np.{text}"
                if dtype in ("bfloat16",) or name in ("var", "std", "prod", "nanprod", "mean"):
                    wanted = ""
                if name.startswith("nan") and holds == "special":
                    wanted = ""
                if name in SUMMED and dtype == INT:
                    wanted = ""
                yield draw.case(
                    f"jnp.{text}",
                    [Input(shape, "", dtype, holds)],
                    rank,
                    wanted,
                    2e-5 if name in SUMMED else 0.0,
                )
    for program, axis in itertools.product(ONLY_OURS, (0, 1)):
        for _ in range(10):
            shape = draw.of((1, 2, 4, 5, 8, 9)), draw.of((1, 3, 4, 6))
            rank = 2 if "soft" in program or "standard" in program else 1
            data = Input(shape, "", FLOAT, draw.of(("special", "small")))
            yield draw.case(program.replace("AXIS", str(axis)), [data], rank, "", 2e-5)
    for name, dtype in itertools.product(("max", "min", "sum", "prod"), ("complex64",)):
        for axis in (0, 1):
            for _ in range(8):
                shape = draw.of((2, 4, 5, 8)), draw.of((1, 3, 4))
                holds = "small" if name == "prod" else "special"  # inf * 1 is inf + nan j
                data = Input(shape, "", dtype, holds)
                yield draw.case(
                    f"jnp.{name}(a, axis={axis})",
                    [data],
                    1,
                    "",
                    2e-5 if name in ("sum", "prod") else 0.0,
                )
    for name in ("and", "or", "xor", "max", "min"):
        for _ in range(12):
            shape = draw.of(SIZES), draw.of((1, 3, 4))
            dtype = draw.of((INT, "bool", "uint8", "int8")) if name != "xor" else INT
            yield draw.case(f"lax.reduce_{name}(a, (0,))", [Input(shape, "", dtype)], 1)
    for name in ("sum", "any", "all", "prod"):
        for shape in ((0,), (0, 4), (4, 0)):
            text = f"{name}(a, axis=0)"
            yield draw.case(f"jnp.{text}", [shape], len(shape) - 1, f"np.{text}")


CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin")


@family
def cumulative() -> Iterator[Case]:
    draw = Draw("cumulative")
    accumulate = {"cumsum": "add", "cumprod": "multiply", "cummax": "maximum", "cummin": "minimum"}
    for name, axis, reverse in itertools.product(CUMULATIVE, (0, 1), (False, True)):
        for _ in range(22):
            shape = draw.of(SIZES), draw.of((1, 3, 4, 6))
            dtype = draw.of((FLOAT, FLOAT, INT))
            close = 2e-5 if name in ("cumsum", "cumprod") and dtype == FLOAT else 0.0
            turn = f"np.flip(NEW, {axis})" if reverse else "NEW"
            wanted = turn.replace(
                "NEW",
                f"np.{accumulate[name]}.accumulate("
                f"{turn.replace('NEW', 'a')}, axis={axis}, dtype=a.dtype)"
                if name in ("cumsum", "cumprod")
                else f"np.{accumulate[name]}.accumulate({turn.replace('NEW', 'a')}, axis={axis})",
            )
            if dtype == INT and name == "cumprod":
                wanted = ""
            yield draw.case(
                f"lax.{name}(a, axis={axis}, reverse={reverse})",
                [Input(shape, "", dtype)],
                2,
                wanted,
                close,
            )
    for _ in range(150):  # several of one operand
        names = draw.some(CUMULATIVE, draw.number(2, 4))
        shape = tuple(draw.of((2, 4, 5, 8)) for _ in range(draw.of((1, 2))))
        how = [
            f"lax.{n}(a, axis={draw.number(0, len(shape) - 1)}, reverse={draw.of((0, 1)) == 1})"
            for n in names
        ]
        yield draw.case(
            f"({', '.join(how)},)",
            [Input(shape, "", FLOAT, "small")],
            [len(shape)] * len(names),
            "",
            2e-5,
        )
    for _ in range(60):
        text, axis = (
            draw.of(
                (
                    "lax.cumlogsumexp(a, axis=AXIS)",
                    "jnp.nancumsum(a, axis=AXIS)",
                    "jnp.nancumprod(a, axis=AXIS)",
                    "lax.associative_scan(lambda x, y: x + y, a, axis=AXIS)",
                    "lax.associative_scan(lax.max, a, axis=AXIS)",
                    "jnp.cumulative_sum(a, axis=AXIS, include_initial=True)",
                )
            ),
            draw.of((0, 1)),
        )
        shape = draw.of((1, 2, 4, 5, 8, 9)), draw.of((1, 3, 4))
        yield draw.case(
            text.replace("AXIS", str(axis)), [Input(shape, "", FLOAT, "small")], 2, "", 2e-5
        )


@family
def gradients() -> Iterator[Case]:
    """Transposes: of strided slices they are pads with interior padding."""
    draw = Draw("gradients")

    def pulled(program: str, shape: tuple, result: tuple, wanted: str = "", close: float = 1e-5):
        data = [Input(shape, "", FLOAT, "small"), Input(result, "", FLOAT, "small")]
        text = f"sw.vjp(lambda x: {program}, a)[1](b)[0]"
        return draw.case(text, data, len(shape), wanted, close)

    for size, start, less, stride in itertools.product(
        (2, 4, 5, 8, 9), (0, 1, 3), (0, 1, 2), (1, 2, 3)
    ):
        if start + less <= size:
            stop = size - less
            part = len(range(start, stop, stride))
            yield pulled(
                f"x[{start}:{stop}:{stride}]",
                (size,),
                (part,),
                f"slice_transposed(b, {size}, {start}, {stride})",
            )
    for _ in range(250):
        size, low, high = draw.of((1, 2, 4, 5, 8)), draw.number(-2, 3), draw.number(-2, 3)
        interior, rows = draw.number(0, 2), draw.of((1, 3, 4))
        out = padded(size, low, high, interior)
        if out >= 0:
            yield pulled(
                f"lax.pad(x, np.float32(0), [(0, 0, 0), ({low}, {high}, {interior})])",
                (rows, size),
                (rows, out),
                f"pad_transposed(b, {size}, {low}, {interior})",
            )
    for program, result in (
        ("jnp.roll(x, 2, 0)", (5, 4)),
        ("x[::-1, ::2]", (5, 2)),
        ("jnp.diff(x, axis=0)", (4, 4)),
        ("jnp.tile(x, (2, 1))", (10, 4)),
        ("jnp.repeat(x, 2, axis=0)", (10, 4)),
        ("jnp.concatenate([x, x[:2]])", (7, 4)),
        ("x.reshape(4, 5)", (4, 5)),
        ("jnp.gradient(x, axis=0)", (5, 4)),
        ("jnp.cumsum(x, 0)", (5, 4)),
        ("lax.dynamic_slice(x, (1, 2), (3, 2))", (3, 2)),
        ("x[np.array([0, 2, 2, -1])]", (4, 4)),
        ("jnp.max(x, axis=0)", (4,)),
        ("jnp.sort(x, axis=0)", (5, 4)),
        ("jnp.prod(x, 0)", (4,)),
        ("lax.dynamic_update_slice(x, x[:2, :1], (4, 1))", (5, 4)),
        ("lax.cummax(x, 0)", (5, 4)),
        ("x.at[np.array([1, 1, 3])].multiply(2)", (5, 4)),
        ("lax.top_k(x, 2)[0]", (5, 2)),
        ("jnp.pad(x, 2, mode='reflect')", (9, 8)),
        ("jnp.linalg.norm(x, axis=0)", (4,)),
        ("nn.softmax(x, axis=0)", (5, 4)),
        ("jnp.stack([x, x], 1)", (5, 2, 4)),
        ("x.at[1:3, ::2].set(0)", (5, 4)),
        ("jnp.flip(x, 0)[1:-1]", (3, 4)),
        ("jnp.take_along_axis(x, np.zeros((2, 4), int), 0)", (2, 4)),
        ("jnp.trace(x)", ()),
    ):
        for _ in range(14):
            yield pulled(program, (5, 4), result, "", 1e-4)


LOOPS = (  # of a[rows, size] and b[size]
    ("lax.scan(lambda c, r: (c + r, c * r), b, a)", [1, 2]),
    ("lax.scan(lambda c, r: (jnp.roll(c, 1) + r, c[::2]), b, a, reverse=True)", [1, 2]),
    ("lax.map(lambda r: jnp.max(r) + b, a)", [2]),
    ("lax.fori_loop(0, 3, lambda i, x: x.at[i].set(x[i + 1] + b), a)", [2]),
    (
        "lax.fori_loop(0, 4, lambda i, x: lax.dynamic_update_slice(x, x[:1] * 2, (i + 1, 0)), a)",
        [2],
    ),
    ("lax.fori_loop(0, 3, lambda i, x: jnp.roll(x, 1, 0), a)", [2]),
    (
        "lax.fori_loop(0, 3, lambda i, x: lax.pad(x, np.float32(0), [(1, -1, 0), (-1, 1, 0)]), a)",
        [2],
    ),
    ("lax.cond(b[0] > 0, lambda x: x[::-1], lambda x: jnp.roll(x, 1, 0), a)", [2]),
    (
        "lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sort(c[1] * -1, 0)), (0, a))",
        [0, 2],
    ),
    ("sw.vmap(lambda r: jnp.convolve(r, b[:2]))(a)", [2]),
    ("sw.vmap(lambda r: r[::-1].at[1].add(b[0]))(a)", [2]),
    ("sw.vmap(lambda c: jnp.cumsum(c), in_axes=1, out_axes=1)(a)", [2]),
)


@family
def loops() -> Iterator[Case]:
    draw = Draw("loops")
    for program, ranks in LOOPS:
        for _ in range(20):
            rows, size = draw.of((4, 5, 8)), draw.of((2, 3, 4, 8))
            shapes = [Input((rows, size), "", FLOAT, "small"), Input((size,), "", FLOAT, "small")]
            yield draw.case(program, shapes, ranks, "", 1e-4)


PARTS = {  # programs of an operand of this rank, and the ranks of their results
    1: (
        ("a", 1),
        ("a[1:3]", 1),
        ("a[::-1]", 1),
        ("a[::2]", 1),
        ("jnp.roll(a, 1)", 1),
        ("lax.dynamic_slice(a, (1,), (2,))", 1),
        ("lax.dynamic_slice(a, (b,), (2,))", 1),
        ("a[b]", 0),
        ("a.at[b].set(3)", 1),
        ("a.at[1:].add(1)", 1),
        ("jnp.max(a)", 0),
        ("lax.cummax(a)", 1),
        ("lax.cummin(a)", 1),
        ("jnp.sort(a)", 1),
        ("jnp.concatenate([a, a])", 1),
        ("lax.pad(a, np.array(0, a.dtype), [(1, -1, 0)])", 1),
        ("a.reshape(1, -1)", 2),
        ("lax.pad(a, np.array(0, a.dtype), [(-1, 2, 1)])", 1),
        ("a + 0", 1),
        ("jnp.min(a)", 0),
        ("at(a, '-')", 1),
        ("at(a[1:], 'x')", 1),
        ("at(a, 'x')[:2]", 1),
        ("jnp.argmax(a)", 0),
    ),
    2: (
        ("a", 2),
        ("a[1:3]", 2),
        ("a[:, ::-1]", 2),
        ("a[::2, 1:]", 2),
        ("jnp.roll(a, 1, 0)", 2),
        ("lax.dynamic_slice(a, (1, 0), (2, 2))", 2),
        ("lax.dynamic_slice(a, (b, b), (2, 2))", 2),
        ("a[b]", 1),
        ("a[:, b]", 1),
        ("a.at[b].set(3)", 2),
        ("jnp.max(a, 0)", 1),
        ("a.T", 2),
        ("lax.cummax(a, axis=0)", 2),
        ("lax.cummin(a, axis=0)", 2),
        ("jnp.sort(a, 0)", 2),
        ("a.reshape(-1)", 1),
        ("a.T.reshape(-1)", 1),
        ("jnp.min(a, 1)", 1),
        ("a + 0", 2),
        ("lax.pad(a, np.array(0, a.dtype), [(1, -1, 0), (0, 2, 1)])", 2),
        ("at(a, '-,-')", 2),
        ("at(a, 'x,-')[1:]", 2),
        ("at(a[1:], '-,x')", 2),
        ("at(a.T, 'x,-')", 2),
    ),
}


@family
def together() -> Iterator[Case]:
    """Several results of one operand in one program, each with its own sharding."""
    draw = Draw("together")
    for _ in range(1000):
        ndim = draw.of((1, 1, 2))
        parts = draw.some(PARTS[ndim], draw.number(2, 5))
        shape = tuple(draw.of((3, 4, 5, 8, 9)) for _ in range(ndim))
        at = Input((), "", INT, f"{draw.number(0, 2)}:2")
        yield draw.case(
            f"({', '.join(p for p, _ in parts)},)",
            [Input(shape, "", draw.of(DTYPES[:3])), at],
            [r for _, r in parts],
        )
