"""Steps that move elements: shapes, slices, orders, positions."""

from __future__ import annotations

from tests.values.programs.draw import MOST, Draw
from tests.values.programs.facts import Fact, Var, epsilon, known, moved, summed, unfit_if
from tests.values.programs.steps import Written, step

ORDERED = "biuf"


def numbers(values: list) -> str:
    return f"np.array({values}, 'int32')"


# Shapes.


@step(4, linear=True)
def reshape(d: Draw) -> Written:
    x = d.var()
    n = x.size
    unfit_if(not n)
    divisors = [k for k in range(1, n + 1) if n % k == 0]
    first = d.one(divisors)
    shape = [first, n // first]
    if d.often(0.4):
        second = d.one([k for k in divisors if shape[1] % k == 0])
        shape = [first, second, shape[1] // second]
    if d.often(0.4):
        shape.insert(d.between(0, len(shape)), 1)
    if d.often(0.2):
        shape = [n]
    return f"jnp.reshape({x.name}, {tuple(shape)})", moved(x)


@step(2, linear=True)
def flat_groups(d: Draw) -> Written:
    """A dimension of 1 inserted, two dimensions joined, one split."""
    x = d.var(least=2)
    unfit_if(not x.size or x.ndim > 3)
    a = d.between(0, x.ndim - 1)
    shape = (*x.shape[:a], 1, *x.shape[a:])
    n = x.size
    first = d.one([k for k in range(1, n + 1) if n % k == 0])
    return f"{x.name}.reshape{shape}.reshape({first}, {n // first})", moved(x)


@step(2, linear=True)
def turned(d: Draw) -> Written:
    x = d.var(least=2)
    axes = list(range(x.ndim))
    d.rng.shuffle(axes)
    return f"jnp.transpose({x.name}, {tuple(axes)})", moved(x)


@step(1, linear=True)
def sizes_of_one(d: Draw) -> Written:
    x = d.var()
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    if ones and d.often():
        return f"jnp.squeeze({x.name}, {d.one(ones)})", moved(x)
    unfit_if(x.ndim > 3)
    return f"jnp.expand_dims({x.name}, {d.between(0, x.ndim)})", moved(x)


@step(1, linear=True)
def broadcast(d: Draw) -> Written:
    x = d.var()
    n = d.between(1, 4)
    unfit_if(x.size * n > MOST or x.ndim > 3)
    return f"jnp.broadcast_to({x.name}, {(n, *x.shape)})", moved(x)


@step(1, linear=True)
def repeated(d: Draw) -> Written:
    x = d.var(least=1)
    unfit_if(x.size * 3 > MOST)
    if d.often():
        return f"jnp.tile({x.name}, {d.between(1, 3)})", moved(x)
    return f"jnp.repeat({x.name}, {d.between(1, 3)}, axis={d.axis(x)})", moved(x)


# Joined and padded.


@step(3, linear=True)
def concatenate(d: Draw) -> Written:
    x = d.var(least=1)
    a = d.axis(x) % x.ndim

    def fits(y: Var) -> bool:
        return y.ndim == x.ndim and all(
            m == n for i, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if i != a
        )

    kinds = "biufc" if x.kind == "c" else ORDERED
    parts = [x] + [d.var(kinds, like=fits) for _ in range(d.between(1, 2))]
    unfit_if(sum(p.size for p in parts) > MOST)
    names = ", ".join(p.name for p in parts)
    return f"jnp.concatenate([{names}], axis={a})", moved(*parts)


@step(1, linear=True)
def stacked(d: Draw) -> Written:
    x = d.var()
    unfit_if(x.size > MOST // 2 or x.ndim > 2)
    kinds = "biufc" if x.kind == "c" else ORDERED
    y = d.var(kinds, like=lambda y: y.shape == x.shape)
    return f"jnp.stack([{x.name}, {y.name}], axis={d.between(0, x.ndim)})", moved(x, y)


@step(3, linear=True)
def pad(d: Draw) -> Written:
    """With any amounts: negative, between elements."""
    x = d.var(least=1)
    amounts, size = [], 1
    for n in x.shape:
        low, high, inner = d.between(-2, 3), d.between(-2, 3), d.one([0, 0, 0, 1, 2])
        total = low + high + n + max(n - 1, 0) * inner
        if total < 0 or d.often(0.3):
            low, high, inner, total = 0, 0, 0, n
        amounts.append((low, high, inner))
        size *= total
    unfit_if(size > MOST)
    return f"lax.pad({x.name}, jnp.asarray(0, {x.name}.dtype), {amounts})", moved(x)


@step(2, linear=True)
def pad_more(d: Draw) -> Written:
    x = d.var(least=1)
    unfit_if(not x.size)
    mode = d.one(["edge", "reflect", "symmetric", "wrap", "constant"])
    amounts = [(d.between(0, 2), d.between(0, 2)) for _ in x.shape]
    grown = 1
    for n, (low, high) in zip(x.shape, amounts, strict=True):
        grown *= n + low + high
    unfit_if(grown > MOST)
    return f"jnp.pad({x.name}, {amounts}, mode='{mode}')", moved(x)


@step(2, linear=True)
def roll(d: Draw) -> Written:
    x = d.var(least=1)
    by = d.between(-9, 9)
    if x.ndim > 1 and d.often(0.3):
        return f"jnp.roll({x.name}, ({by}, 1), axis=(0, 1))", moved(x)
    if d.often(0.2):
        return f"jnp.roll({x.name}, {by})", moved(x)
    return f"jnp.roll({x.name}, {by}, axis={d.axis(x)})", moved(x)


@step(1)
def differences(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    a = d.axis(x)
    unfit_if(x.kind == "f" and x.fact.bound > 1e6)
    return f"jnp.diff({x.name}, axis={a})", summed(x, 2)


# Slices.


@step(4, linear=True)
def sliced(d: Draw) -> Written:
    x = d.var(least=1)
    words = []
    for n in x.shape:
        start, stop = sorted([d.between(-1, n), d.between(0, n + 1)])
        words.append(d.one([
            ":", f"{max(start, 0)}:{stop}", f"{max(start, 0)}:{stop}:{d.between(2, 3)}", "::-1",
            f"::{d.between(2, 4)}", "::-2", f"{d.between(0, 1)}:", ":-1",
        ]))  # fmt: skip
    if d.often(0.3) and x.shape[0]:
        words[0] = str(d.between(-x.shape[0], x.shape[0] - 1))
    return f"{x.name}[{', '.join(words)}]", moved(x)


@step(3, linear=True)
def dynamic_slice(d: Draw) -> Written:
    x = d.var(least=1)
    sizes = tuple(d.between(0 if n == 0 else 1, n) for n in x.shape)
    starts = [_start(d, x, n) for n in x.shape]
    return f"lax.dynamic_slice({x.name}, ({', '.join(starts)},), {sizes})", moved(x)


def _start(d: Draw, x: Var, n: int) -> str:
    """A position, possibly out of bounds, that is not known at compile time."""
    scalars = [v for v in d.vars if v.kind == "i" and v.dtype.itemsize == 4 and not v.shape]
    if scalars and d.often():
        return d.one(scalars).name
    return f"jnp.int32({d.between(-2, n + 1)})"


@step(3)
def dynamic_update(d: Draw) -> Written:
    x = d.var(least=1)
    y = d.var(least=x.ndim, like=lambda y: (
        y.dtype == x.dtype and y.ndim == x.ndim
        and all(m <= n for m, n in zip(y.shape, x.shape, strict=True))
    ))  # fmt: skip
    starts = [_start(d, x, n) for n in x.shape]
    return f"lax.dynamic_update_slice({x.name}, {y.name}, ({', '.join(starts)},))", moved(x, y)


@step(1)
def update_by_part(d: Draw) -> Written:
    """A slice of the array itself, written to another position."""
    x = d.var(least=1)
    unfit_if(not x.shape[0])
    k = d.between(1, x.shape[0])
    starts = ", ".join([_start(d, x, x.shape[0])] + ["jnp.int32(0)"] * (x.ndim - 1))
    part = f"{x.name}[{x.shape[0] - k}:]"
    return f"lax.dynamic_update_slice({x.name}, {part}, ({starts},))", moved(x)


@step(3, linear=True)
def taken(d: Draw) -> Written:
    x = d.var(least=1)
    a = d.axis(x, filled=True)
    mode = d.one(["clip", "wrap", "fill"])
    places = d.indices(x.shape[a], d.between(1, 6), outside=True)
    if mode == "fill":
        places = [p for p in places if p >= -x.shape[a]] or [0]
        fill = "0" if x.kind in "bu" else "-1"
        text = f"jnp.take({x.name}, {numbers(places)}, axis={a}, mode='fill', fill_value={fill})"
        return text, known(
            max(x.fact.bound, 1), whole=x.fact.whole, error=x.fact.error, signs=x.fact.signs
        )
    return f"jnp.take({x.name}, {numbers(places)}, axis={a}, mode='{mode}')", moved(x)


@step(2)
def taken_along(d: Draw) -> Written:
    x = d.var(least=1)
    a = d.axis(x, filled=True) % x.ndim
    name = d.one(["argsort", "argmax"])
    y = d.var(ORDERED, exact=True, like=lambda y: y.shape == x.shape)
    if name == "argsort":
        places = f"jnp.argsort({y.name}, axis={a})"
    else:
        places = f"jnp.argmax({y.name}, axis={a}, keepdims=True)"
    return f"jnp.take_along_axis({x.name}, {places}, axis={a})", moved(x)


@step(2, linear=True)
def by_arrays(d: Draw) -> Written:
    """Rows and columns by lists of numbers."""
    x = d.var(least=2)
    unfit_if(0 in x.shape)
    n = d.between(1, 5)
    rows, columns = (numbers(d.indices(m, n)) for m in x.shape[:2])
    words = d.one([f"{rows}, {columns}", f":, {columns}", rows, f"{rows}[:, None], {columns}",
                   f"{rows}, 1:"])  # fmt: skip
    return f"{x.name}[{words}]", moved(x)


# Updates.


@step(5)
def at(d: Draw) -> Written:
    """Some of them more than once, some outside."""
    x = d.var(least=1)
    a, n = 0, x.shape[0]
    unfit_if(not n)
    places = d.indices(n, d.between(1, 6), outside=d.often(0.3))
    mode = d.one(["", "", ", mode='clip'", ", mode='drop'", ", mode='promise_in_bounds'"])
    if "promise" in mode:
        places = d.indices(n, len(places))
    where = d.one([numbers(places), numbers(places), f"{d.between(0, n - 1)}", f"{a}::2", "1:",
                   f"{d.between(-n, n - 1)}:"])  # fmt: skip
    if x.ndim > 1 and x.shape[1] and d.often(0.4):
        columns = numbers(d.indices(x.shape[1], len(places)))
        where = f"{numbers(places)}, {d.one([columns, columns, str(x.shape[1] - 1), '1:'])}"
    return _written(d, x, where, mode, repeats=len(places))


def _written(d: Draw, x: Var, where: str, mode: str, repeats: int) -> Written:
    how = d.one(["add", "multiply", "min", "max", "set"]) if x.kind in "iuf" else "set"
    head = f"{x.name}.at[{where}].{how}"
    if how == "set":  # repeated positions: one of the values, so that all are the same
        return f"{head}({'1' if x.kind != 'b' else 'True'}{mode})", known(
            max(x.fact.bound, 1), whole=x.fact.whole, error=x.fact.error, signs=x.fact.signs
        )
    value, size = _update(d, x, where)
    if how == "add":
        fact = summed(x, 1 + repeats, max(1.0, size))
        return f"{head}({value}{mode})", fact
    if how == "multiply":
        unfit_if(x.kind == "f" and (x.fact.bound * 3**repeats > 1e6 or not x.exact))
        bound = x.fact.bound * 3**repeats
        return f"{head}(-2{mode})" if x.kind != "u" else f"{head}(3{mode})", known(
            bound, whole=x.fact.whole, signs=False
        )
    return f"{head}({value}{mode})", known(
        max(x.fact.bound, size), whole=x.fact.whole, error=x.fact.error, signs=False
    )


def _update(d: Draw, x: Var, where: str) -> tuple[str, float]:
    """Values to write: a number, or the elements there in another order, maybe with NaN."""
    if d.often(0.3):
        return "2", 2.0
    if x.kind == "f" and d.often(0.3):
        return "np.float32('nan')" if d.often() else "-0.0", 0.0
    return f"{x.name}[{where}][::-1]", x.fact.bound if x.fact.bound < 1e9 else 1.0


@step(2)
def put_along(d: Draw) -> Written:
    x = d.var(ORDERED, least=1)
    a = d.axis(x, filled=True) % x.ndim
    shape = list(x.shape)
    shape[a] = d.one([1, 1, 2])
    n = 1
    for k in shape:
        n *= k
    places = d.indices(x.shape[a], n)
    text = f"{numbers(places)}.reshape{tuple(shape)}"
    return (
        f"jnp.put_along_axis({x.name}, {text}, 1, axis={a}, inplace=False)",
        known(max(x.fact.bound, 1), whole=x.fact.whole, error=x.fact.error, signs=x.fact.signs),
    )


@step(2)
def segments(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    ids = d.indices(4, x.shape[0], outside=True)
    name = d.one(["sum", "max", "min"])
    unfit_if(name != "sum" and x.kind == "f" and x.fact.bound == float("inf"))
    text = f"sw.ops.segment_{name}({x.name}, {numbers(ids)}, 5)"
    if name == "sum":
        return text, summed(x, x.shape[0])
    if x.kind in "iu":  # an empty segment is the smallest or largest number
        return text, known(float("inf"))
    return text, moved(x, signs=False)


@step(1)
def lax_scatter(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    n = x.shape[0]
    unfit_if(not n or x.ndim > 2)
    places = d.indices(n, d.between(1, 5), outside=True)
    window = "(1,)" if x.ndim == 2 else "()"
    kind = d.one(["scatter_min", "scatter_max", "scatter_add"])
    mode = d.one(["clip", "drop"])
    numbers_ = (
        f"lax.ScatterDimensionNumbers(update_window_dims={window}, inserted_window_dims=(0,), "
        "scatter_dims_to_operand_dims=(0,))"
    )
    updates = f"jnp.take({x.name}, {numbers(places)}, axis=0, mode='clip')"
    text = f"lax.{kind}({x.name}, {numbers(places)}[:, None], {updates}, {numbers_}, mode='{mode}')"
    if kind == "scatter_add":
        return text, summed(x, len(places) + 1)
    return text, moved(x, signs=False)


# Orders.


@step(3)
def sort(d: Draw) -> Written:
    x = d.var(least=1, exact=True)
    words = f"axis={d.axis(x)}" + (", descending=True" if d.often(0.3) else "")
    return f"jnp.sort({x.name}, {words})", moved(x)


@step(2)
def argsort(d: Draw) -> Written:
    x = d.var(ORDERED, least=1, exact=True)
    return f"jnp.argsort({x.name}, axis={d.axis(x)})", known(400)


@step(1)
def sort_by_key(d: Draw) -> Written:
    x = d.var(ORDERED, least=1, exact=True)
    y = d.var(like=lambda y: y.shape == x.shape)
    return f"lax.sort(({x.name}, {y.name}), dimension={d.axis(x) % x.ndim}, num_keys=1)", [
        moved(x), moved(y),
    ]  # fmt: skip


@step(3)
def top_k(d: Draw) -> Written:
    x = d.var("iuf", least=1, exact=True)
    unfit_if(not x.shape[-1])
    k = d.between(1, x.shape[-1])
    # It sorts 0 before -0, which a transfer may have turned into 0.
    operand = x.name if x.kind != "f" else f"jnp.where({x.name} == 0, 0, {x.name})"
    return f"lax.top_k({operand}, {k})", [moved(x), known(400)]


@step(2)
def quantiles(d: Draw) -> Written:
    x = d.var("f", least=1)
    a = d.axis(x, filled=True)
    unfit_if(x.fact.bound > 1e4 or not x.exact)
    name = d.one(["median", "nanmedian", "quantile", "nanquantile"])
    method = d.one(["lower", "higher", "linear"])
    words = "" if "median" in name else f", {d.one([0.0, 0.3, 0.5, 1.0])}"
    how = "" if "median" in name else f", method='{method}'"
    text = f"jnp.{name}({x.name}{words}, axis={a}{how})"
    return text, lambda dtype: Fact(
        x.fact.bound, False, 8 * epsilon(x.dtype) * x.fact.bound, signs=False
    )


@step(1)
def found(d: Draw) -> Written:
    x = d.var(ORDERED, least=1, exact=True)
    unfit_if(x.ndim != 1 or not x.size)
    y = d.var(ORDERED, exact=True, like=lambda y: y.dtype == x.dtype)
    return f"jnp.searchsorted(jnp.sort({x.name}), {y.name})", known(400)


@step(1)
def nonzero(d: Draw) -> Written:
    x = d.var(least=1, exact=True)
    unfit_if(x.ndim != 1)
    return f"jnp.nonzero({x.name}, size={d.between(1, 6)}, fill_value=-1)[0]", known(400)
