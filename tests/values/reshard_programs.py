"""Random programs that reshard several slices, pads and folds of one value to one sharding.

XLA's partitioner caches the forms of a value under other shardings (XLA error `shared-reshards` in
docs/values.md): these programs might receive another value's form. They are
`structure.Case`s: text, which shardwise and jax run. All of them compile, also those that jax does
not compile.

    python -m tests.values.reshard_programs 0 200              # programs by number
    python -m tests.values.reshard_programs 0 200 --library jax
"""

from __future__ import annotations

import argparse
import functools
import math
import random
from collections.abc import Callable
from contextlib import suppress

from tests.values.programs.facts import Unfit, unfit_if
from tests.values.structure import Case, Input, sweep
from tests.values.structure_cases import specs

MESHES = [(8,), (4, 2), (2, 2, 2), (3, 2)]
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)
FOCUSED = 2500  # the number of the first program of the second kind
MOST = 600  # elements of a value

Shape = tuple[int, ...]
Made = tuple[str, Shape]
Step = Callable[["Draft", str, Shape], Made]  # or it raises Unfit


class Draft:
    """A program that is being drawn: its assignments, and the shapes of its values."""

    def __init__(self, rng: random.Random, mesh: Shape, floats: bool):
        self.rng = rng
        self.mesh = mesh
        self.floats = floats
        self.devices = math.prod(mesh)
        self.lines: list[str] = []
        self.shapes: dict[str, Shape] = {}

    def add(self, text: str, shape: Shape) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"({name} := {text})")
        self.shapes[name] = shape
        return name

    def value(self) -> str:
        """One of the values; later ones are more likely."""
        names = list(self.shapes)
        return self.rng.choice(names[-3:] if self.rng.random() < 0.5 else names)

    def spec(self, shape: Shape) -> str:
        return self.rng.choice(specs(len(shape), self.mesh))

    def placed(self, text: str, shape: Shape) -> str:
        return f"at({text}, '{self.spec(shape)}')" if shape else text

    def maybe_placed(self, text: str, shape: Shape) -> str:
        return self.placed(text, shape) if self.rng.random() < 0.4 else text

    def dim(self, shape: Shape, least: int = 2) -> int:
        """A dimension of at least this size."""
        found = [d for d, n in enumerate(shape) if n >= least]
        unfit_if(not found)
        return self.rng.choice(found)

    def cut(self, n: int) -> int:
        """The number of elements to trim from a dimension: mostly fewer than devices."""
        return self.rng.randint(1, min(n - 1, self.rng.choice((1, 2, 3, self.devices, n - 1))))

    def step(self, steps: list[Step]) -> None:
        name = self.value()
        with suppress(Unfit):
            self.add(*fitting(self.rng.choice(steps)(self, name, self.shapes[name])))


def fitting(made: Made) -> Made:
    unfit_if(not 0 < math.prod(made[1]) <= MOST)
    return made


def at_dim(shape: Shape, d: int, index: str) -> str:
    """An index of a dimension: `:, 1:3`."""
    return "[" + ", ".join([":"] * d + [index]) + "]"


def sized(shape: Shape, d: int, n: int) -> Shape:
    return (*shape[:d], n, *shape[d + 1 :])


# -- steps: a new value --


def head(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    k = shape[d] - p.cut(shape[d])
    return f"{x}{at_dim(shape, d, f':{k}')}", sized(shape, d, k)


def heads(p: Draft, x: str, shape: Shape) -> Made:
    """The first elements along every dimension."""
    unfit_if(not shape)
    ends = tuple(n - p.rng.randint(0, min(2, n - 1)) for n in shape)
    return f"{x}[{', '.join(f':{k}' for k in ends)}]", ends


def tail(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    k = p.cut(shape[d])
    return f"{x}{at_dim(shape, d, f'{k}:')}", sized(shape, d, shape[d] - k)


def middle(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape, 3)
    a = p.rng.randint(0, min(3, shape[d] - 2))
    b = p.rng.randint(a + 1, shape[d])
    return f"{x}{at_dim(shape, d, f'{a}:{b}')}", sized(shape, d, b - a)


def strided(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    n, s = shape[d] - p.rng.randint(0, 1), p.rng.randint(2, 3)
    return f"{x}{at_dim(shape, d, f':{n}:{s}')}", sized(shape, d, -(-n // s))


def element(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(len(shape) < 2)
    d = p.rng.randrange(len(shape))
    i = p.rng.choice((0, 0, shape[d] - 1))
    return f"{x}{at_dim(shape, d, str(i))}", (*shape[:d], *shape[d + 1 :])


def difference(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape, 3)
    k = p.rng.randint(1, min(3, shape[d] - 1))
    pieces = [f"{x}{at_dim(shape, d, i)}" for i in (f"{k}:", f":{shape[d] - k}")]
    out = sized(shape, d, shape[d] - k)
    return f"{p.maybe_placed(pieces[0], out)} - {p.maybe_placed(pieces[1], out)}", out


def diff(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape, 4)
    n = p.rng.randint(1, 3)
    return f"jnp.diff({x}, n={n}, axis={d})", sized(shape, d, shape[d] - n)


def gradient(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape, 3)
    return f"(2 * jnp.gradient({x}, axis={d})).astype({x}.dtype)", shape


def pad(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(not shape)
    rows = [(0, 0, 0)] * len(shape)
    d = p.rng.randrange(len(shape))
    rows[d] = (p.rng.randint(-2, 2), p.rng.randint(-2, 2), p.rng.choice((0, 0, 0, 1)))
    n = shape[d] + sum(rows[d][:2]) + rows[d][2] * (shape[d] - 1)
    unfit_if(n < 1)
    value = p.rng.choice((0, 0, 5, 7))
    return f"lax.pad({x}, np.asarray({value}, {x}.dtype), {rows})", sized(shape, d, n)


def pad_like(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape, 3)
    rows = [(0, 0)] * len(shape)
    rows[d] = (p.rng.randint(0, 2), p.rng.randint(0, 2))
    mode = p.rng.choice(("edge", "wrap", "reflect", "symmetric"))
    return f"jnp.pad({x}, {rows}, mode='{mode}')", sized(shape, d, shape[d] + sum(rows[d]))


def roll(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    return f"jnp.roll({x}, {p.rng.choice((1, -1, 2, -2, 3))}, {d})", shape


def rotation(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    k = shape[d] - p.cut(shape[d])
    parts = [
        (f"{x}{at_dim(shape, d, f'{k}:')}", sized(shape, d, shape[d] - k)),
        (f"{x}{at_dim(shape, d, f':{k}')}", sized(shape, d, k)),
    ]
    texts = [p.maybe_placed(*part) for part in parts]
    return f"jnp.concatenate([{', '.join(texts)}], {d})", shape


def halves(p: Draft, x: str, shape: Shape) -> Made:
    """Two consecutive slices that almost cover the value."""
    d = p.dim(shape, 3)
    end = shape[d] - p.rng.randint(0, min(3, shape[d] - 2))
    k = p.rng.randint(1, end - 1)
    parts = [
        (f"{x}{at_dim(shape, d, f':{k}')}", sized(shape, d, k)),
        (f"{x}{at_dim(shape, d, f'{k}:{end}')}", sized(shape, d, end - k)),
    ]
    if p.rng.random() < 0.2:
        parts.reverse()
    texts = [p.maybe_placed(*part) for part in parts]
    return f"jnp.concatenate([{', '.join(texts)}], {d})", sized(shape, d, end)


def longer(p: Draft, x: str, shape: Shape) -> Made:
    """A value with some elements that are the same before or after it."""
    unfit_if(not shape)
    d, k = p.rng.randrange(len(shape)), p.rng.randint(1, 2)
    more = f"np.full({sized(shape, d, k)}, {p.rng.choice((0, 5, 7))}, {x}.dtype)"
    texts = [x, more] if p.rng.random() < 0.7 else [more, x]
    return f"jnp.concatenate([{', '.join(texts)}], {d})", sized(shape, d, shape[d] + k)


def joined(p: Draft, x: str, shape: Shape) -> Made:
    y = p.value()
    other = p.shapes[y]
    same = [
        d
        for d in range(len(shape))
        if len(other) == len(shape) and sized(shape, d, 0) == sized(other, d, 0)
    ]
    unfit_if(not same)
    d = p.rng.choice(same)
    return f"jnp.concatenate([{x}, {y}], {d})", sized(shape, d, shape[d] + other[d])


def combined(p: Draft, x: str, shape: Shape) -> Made:
    """Two values, trimmed to the same size."""
    y = p.value()
    other = p.shapes[y]
    unfit_if(len(other) != len(shape) or not shape)
    out = tuple(map(min, shape, other))
    cut = [
        v if s == out else f"{v}[{', '.join(f':{n}' for n in out)}]"
        for v, s in ((x, shape), (y, other))
    ]
    return f"{cut[0]} {p.rng.choice('+-')} {cut[1]}", out


def folded(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(not shape)
    d = p.rng.randrange(len(shape))
    return f"{x}.{p.rng.choice(('sum', 'max', 'min'))}({d})", (*shape[:d], *shape[d + 1 :])


def scanned(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(not shape)
    return f"lax.{p.rng.choice(('cumsum', 'cummax', 'cummin'))}({x}, {p.dim(shape, 1)})", shape


def reshaped(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(not shape)
    d, kind = p.rng.randrange(len(shape)), p.rng.randrange(4)
    if kind == 0:
        return f"{x}.reshape(-1)", (math.prod(shape),)
    if kind == 1 and d + 1 < len(shape):
        out = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])
    elif kind == 2 and len(shape) < 3 and shape[d] % 2 == 0:
        out = (*shape[:d], *p.rng.choice(((2, shape[d] // 2), (shape[d] // 2, 2))), *shape[d + 1 :])
    elif len(shape) < 3:
        out = (*shape[:d], 1, *shape[d:])
    else:
        raise Unfit
    return f"{x}.reshape({', '.join(map(str, out))})", out


def turned(p: Draft, x: str, shape: Shape) -> Made:
    return f"{x}.T", shape[::-1]


def reversed_(p: Draft, x: str, shape: Shape) -> Made:
    return f"lax.rev({x}, ({p.dim(shape)},))", shape


def repeated(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(len(shape) > 2)
    n = p.rng.randint(1, 3)
    return f"jnp.broadcast_to({x}, {(n, *shape)})", (n, *shape)


def window(p: Draft, x: str, shape: Shape) -> Made:
    """A dynamic slice: from a start in the text, or one that is computed."""
    d = p.dim(shape)
    k = shape[d] - p.cut(shape[d])
    starts = ["0"] * len(shape)
    if p.rng.random() < 0.5:
        starts[d] = f"({x}.sum() % 3).astype(np.int32)"
    sizes = sized(shape, d, k)
    return f"lax.dynamic_slice({x}, ({', '.join(starts)},), {sizes})", sizes


def written(p: Draft, x: str, shape: Shape) -> Made:
    d = p.dim(shape)
    k = p.cut(shape[d])
    index = at_dim(shape, d, p.rng.choice((f":{shape[d] - k}", f"{k}:")))
    return f"{x}.at{index}.{p.rng.choice(('set', 'add'))}({p.rng.choice((0, 3))})", shape


def computed(p: Draft, x: str, shape: Shape) -> Made:
    return p.rng.choice((f"{x} * 2 + 1", f"jnp.where({x} > 1, {x}, 0)", f"-{x}")), shape


def placed(p: Draft, x: str, shape: Shape) -> Made:
    unfit_if(not shape)
    return p.placed(x, shape), shape


def transposed(p: Draft, x: str, shape: Shape) -> Made:
    """The derivative of a slice: a pad."""
    unfit_if(not p.floats)
    text, new = p.rng.choice((head, tail, middle))(p, "v", shape)
    inner = p.maybe_placed(text, new)
    return f"sw.vjp(lambda v: {inner}, {x})[1]({text.replace('v', x, 1)})[0]", shape


# -- programs in programs --


def body(p: Draft, shape: Shape) -> str:
    """A function's text of `v`, whose result is of the shape of `v`."""
    d = p.dim(shape, 3)
    k = p.rng.randint(1, min(3, shape[d] - 1))
    first = (f"v{at_dim(shape, d, f':{shape[d] - k}')}", sized(shape, d, shape[d] - k))
    last = (f"v{at_dim(shape, d, f'{k}:')}", sized(shape, d, shape[d] - k))
    rest = (f"v{at_dim(shape, d, f':{k}')}", sized(shape, d, k))
    one, two, three = (p.maybe_placed(*part) for part in (first, last, rest))
    rows = [(0, 0)] * len(shape)
    rows[d] = (0, k)
    return p.rng.choice(
        (
            f"jnp.concatenate([{two}, {three}], {d})",
            f"jnp.pad({one} - {two}, {rows})",
            f"v.at{at_dim(shape, d, f':{shape[d] - k}')}.add({two})",
            f"jnp.roll(v, {k}, {d}) - jnp.concatenate([{three}, {one}], {d})",
            f"(2 * jnp.gradient(v, axis={d})).astype(v.dtype)",
        )
    )


def looped(p: Draft, x: str, shape: Shape) -> Made:
    return f"lax.fori_loop(0, 2, lambda i, v: {body(p, shape)}, {x})", shape


def branched(p: Draft, x: str, shape: Shape) -> Made:
    one, two = body(p, shape), body(p, shape)
    return f"lax.cond({x}.sum() > 3, lambda v: {one}, lambda v: {two}, {x})", shape


def called(p: Draft, x: str, shape: Shape) -> Made:
    return f"sw.jit(lambda v: {body(p, shape)})({x})", shape


def over_rows(p: Draft, x: str, shape: Shape) -> Made:
    """A scan over the first dimension, some steps of which may be unrolled."""
    unfit_if(len(shape) < 2)
    text = body(p, shape[1:])
    unroll = p.rng.choice((1, 1, 2, shape[0]))
    step = f"lambda c, v: (c + v.sum(), {text})"
    return f"lax.scan({step}, {x}.sum() * 0, {x}, unroll={unroll})[1]", shape


SLICES: list[Step] = [head, head, head, heads, heads, tail, middle, strided, element]
MOVES: list[Step] = [
    *SLICES,
    difference,
    difference,
    diff,
    gradient,
    pad,
    pad,
    pad_like,
    roll,
    rotation,
    halves,
    halves,
    longer,
    joined,
    combined,
    reshaped,
    turned,
    reversed_,
    repeated,
    window,
    written,
    transposed,
]
FOLDS: list[Step] = [folded, folded, scanned]
NESTED: list[Step] = [looped, branched, called, over_rows]
PLACES: list[Step] = [placed, placed, placed, computed]


def related(p: Draft) -> list[str]:
    """Several values of one, each a slice, pad or fold of it, at one sharding."""
    name = p.value()
    shape = p.shapes[name]
    steps = p.rng.choice((SLICES, SLICES, MOVES))
    found, targets = [], {}
    for _ in range(p.rng.randint(2, 4)):
        try:
            text, new = fitting(p.rng.choice(steps)(p, name, shape))
        except Unfit:
            continue
        if len(new) > 1 and p.rng.random() < 0.4:
            d = p.rng.randrange(len(new))
            text, new = f"({text}).{p.rng.choice(('sum', 'max'))}({d})", (*new[:d], *new[d + 1 :])
        spec = targets.setdefault(len(new), p.spec(new))
        found.append(p.add(f"at({text}, '{spec}')" if new else text, new))
    return found


# -- found most errors: a little less than a sharded value, several times --

AFTERWARDS: list[Step] = [computed, pad, longer, reversed_, scanned, folded, turned, strided, roll]


def beginning(p: Draft, x: str, shape: Shape, dims: list[int]) -> tuple[str, Shape]:
    """The first elements along dimensions, nearly all."""
    ends = [
        n if d not in dims else max(1, n - p.rng.randint(1, min(3, p.devices - 1)))
        for d, n in enumerate(shape)
    ]
    texts = [":" if k == n else f":{k}" for k, n in zip(ends, shape, strict=True)]
    return f"{x}[{', '.join(texts)}]", tuple(ends)


def beginnings(p: Draft, x: str, place: str) -> list[str]:
    """Leading slices of a value along its sharded dimensions, with one sharding."""
    shape, found, targets = p.shapes[x], [], {}
    split = [d for d, part in enumerate(place.split(",")) if part != "-"] or [0]
    dims = split if p.rng.random() < 0.3 else [p.rng.choice(split)]
    after = p.rng.choice([None, *AFTERWARDS])
    for _ in range(p.rng.randint(2, 3)):
        text, new = beginning(p, x, shape, dims)
        if p.rng.random() < 0.1:
            text, new = x, shape
        same = after if p.rng.random() < 0.7 else p.rng.choice([None, *AFTERWARDS, tail])
        with suppress(Unfit):
            text, new = same(p, f"({text})", new) if same else (text, new)
        spec = targets.setdefault(len(new), p.spec(new))
        found.append(p.add(f"at({text}, '{spec}')" if new else text, new))
    return found


@functools.cache
def program(number: int) -> Case:
    """The program of this number: always the same one. From `FOCUSED` on, they are small ones."""
    rng = random.Random(f"reshards {number}")
    mesh, floats = MESHES[number % len(MESHES)], rng.random() < 0.6
    p = Draft(rng, mesh, floats)
    return _of_beginnings(p) if number >= FOCUSED else _of_anything(p)


def _of_beginnings(p: Draft) -> Case:
    rng, ndim = p.rng, p.rng.choice((1, 2, 2, 2, 3))
    shape = tuple([rng.choice(SIZES if ndim < 3 else SIZES[:6]) for _ in range(ndim)])
    place = rng.choice([s for s in specs(ndim, p.mesh) if s.strip("-,")])
    a = Input(shape, rng.choice((place, place, p.spec(shape))), _dtype(p), "small")
    p.shapes["a"] = shape
    x = p.add(rng.choice((f"at(a * 2, '{place}')", f"at(a, '{place}')")), shape)
    if a.spec == place and rng.random() < 0.5:
        x = "a"
    results = beginnings(p, x, place)
    if rng.random() < 0.3:
        p.step(NESTED)
        results.append(p.value())
    outs = ";".join([rng.choice((p.spec(p.shapes[r]), "?", "?")) for r in results])
    return _case(p, results, (a,), outs)


def _dtype(p: Draft) -> str:
    return "float32" if p.floats else "int32"


def _case(p: Draft, results: list[str], inputs: tuple[Input, ...], outs: str) -> Case:
    text = f"({', '.join([*p.lines, '(' + ', '.join(results) + ',)'])})[-1]"
    return Case(text, inputs, p.mesh, outs, close=1e-5)


def _of_anything(p: Draft) -> Case:
    rng = p.rng
    ndim = rng.choice((1, 2, 2, 2, 3))
    sizes = SIZES if ndim < 3 else SIZES[:6]
    shapes = [tuple(rng.choice(sizes) for _ in range(ndim)) for _ in range(rng.choice((1, 1, 2)))]
    inputs = tuple(Input(s, p.spec(s), _dtype(p), "small") for s in shapes)
    p.shapes.update(zip("ab", shapes, strict=False))
    for _ in range(rng.randint(0, 2)):
        p.step(rng.choice((PLACES, PLACES, MOVES)))
    results = related(p)
    for _ in range(rng.randint(0, 4)):
        p.step(rng.choice((MOVES, MOVES, FOLDS, PLACES, PLACES, NESTED)))
    results += [p.value() for _ in range(rng.randint(1, 2))]
    results = list(dict.fromkeys(results))
    outs = ";".join(rng.choice((p.spec(p.shapes[r]), "?")) for r in results)
    return _case(p, results, inputs, outs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.values.reshard_programs")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--library", default="shardwise")
    options = parser.parse_args()
    cases = [program(n) for n in range(options.first, options.last)]
    print(sweep(cases, options.library).text(100))


if __name__ == "__main__":
    main()
