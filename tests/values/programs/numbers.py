"""Steps that compute: elementwise, reductions, scans along an axis, contractions."""

from __future__ import annotations

from math import inf

from tests.values.programs.draw import Draw, dtype_of
from tests.values.programs.facts import (
    Fact,
    Unfit,
    Var,
    epsilon,
    known,
    largest,
    moved,
    product,
    settled,
    summed,
    unfit_if,
)  # fmt: skip
from tests.values.programs.steps import Written, step

ORDERED = "biuf"


@step(3)
def binary(d: Draw) -> Written:
    x = d.var("iufc")
    y = d.partner(x, "biufc")
    name = d.one(["add", "subtract", "multiply"])
    if name == "multiply":
        rule = product(x, y)
    else:
        unfit_if(inf in (x.fact.bound, y.fact.bound) and "f" in x.kind + y.kind)
        f, g = x.fact, y.fact
        fact = Fact(f.bound + g.bound, f.whole and g.whole, f.error + g.error, signs=False)

        def rule(dtype):
            return settled(fact, dtype, rounds=2)

    return f"jnp.{name}({x.name}, {y.name})", rule


@step(2)
def extreme(d: Draw) -> Written:
    x = d.var(ORDERED)
    y = d.partner(x, ORDERED)
    name = d.one(["maximum", "minimum", "fmax", "fmin"])
    return f"jnp.{name}({x.name}, {y.name})", moved(x, y, signs=False)


@step(2)
def unary(d: Draw) -> Written:
    x = d.var("iufc")
    if x.kind == "c":
        return f"{d.one(['jnp.negative', 'jnp.conj'])}({x.name})", moved(x, signs=False)
    name = d.one(["abs", "negative", "sign", "square", "relu"])
    if name == "square":
        return f"jnp.square({x.name})", product(x, x)
    unfit_if(name == "sign" and not x.exact)
    return f"{'nn' if name == 'relu' else 'jnp'}.{name}({x.name})", moved(x, signs=False)


@step(1)
def rounded(d: Draw) -> Written:
    x = d.var("f", exact=True)
    name = d.one(["floor", "ceil", "trunc", "round", "nan_to_num"])
    if name == "nan_to_num":
        return f"jnp.nan_to_num({x.name}, posinf=2.0, neginf=-2.0)", moved(x)
    return f"jnp.{name}({x.name})", moved(x)


@step(1)
def integers(d: Draw) -> Written:
    x = d.var("iu")
    y = d.partner(x, "iu")
    unfit_if(x.dtype != y.dtype)
    name = d.one(["bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "remainder",
                  "left_shift", "right_shift"])  # fmt: skip
    if name == "floor_divide" and x.name == y.name:  # of 0 by itself: docs/values.md
        raise Unfit
    return f"jnp.{name}({x.name}, {y.name})", known(inf)


@step(1)
def bits(d: Draw) -> Written:
    x = d.var("iu")
    name = d.one(["jnp.bitwise_not", "lax.population_count", "lax.clz"])
    return f"{name}({x.name})", known(inf)


@step(2)
def compared(d: Draw) -> Written:
    x = d.var(ORDERED, exact=True)
    y = d.partner(x, ORDERED, like=lambda y: y.exact)
    name = d.one(["greater", "less_equal", "equal", "not_equal"])
    return f"jnp.{name}({x.name}, {y.name})", known(1)


@step(1)
def asked(d: Draw) -> Written:
    x = d.var("f")
    return f"jnp.{d.one(['isnan', 'isinf', 'isfinite', 'isposinf'])}({x.name})", known(1)


@step(2)
def where(d: Draw) -> Written:
    x = d.var()
    y = d.partner(x, "biufc" if x.kind == "c" else ORDERED)
    mask = _mask(d, x, y)
    return f"jnp.where({mask}, {x.name}, {y.name})", moved(x, y)


def _mask(d: Draw, x: Var, y: Var) -> str:
    try:
        return d.partner(x, "b").name
    except Unfit:
        z = d.one([z for z in (x, y) if z.exact and z.kind in "iuf"] or [None])
        if z is None:
            raise
        return f"{z.name} > 0"


@step(1)
def clipped(d: Draw) -> Written:
    x = d.var("iuf")
    return f"jnp.clip({x.name}, 1, 2)", moved(x)


@step(2)
def smooth(d: Draw) -> Written:
    """The few functions on real numbers: derivatives of at most 1, values of at most 2."""
    x = d.var("f")
    name = d.one(["jnp.tanh", "jnp.sin", "nn.sigmoid", "jnp.arctan"])
    unfit_if(x.fact.bound > 100)

    def rule(dtype):
        return Fact(2.0, False, x.fact.error + 16 * epsilon(dtype), signs=False)

    return f"{name}({x.name})", rule


@step(2)
def converted(d: Draw) -> Written:
    x = d.var()
    to = dtype_of(d.one(["float32", "int32", "bfloat16", "float16", "int8", "bool", "uint32"]))
    unfit_if(x.kind == "c" or (to.name in ("int32", "int8", "bool", "uint32") and not x.exact))
    if x.kind == "f" and to.kind in "iu":  # beyond the range anything may come
        return f"jnp.nan_to_num(jnp.clip({x.name}, 0, 100)).astype('{to.name}')", known(100)
    unfit_if(x.fact.error and epsilon(to) > epsilon(x.dtype))
    whole = x.fact.whole and x.fact.bound < 2000
    fact = Fact(x.fact.bound if x.fact.bound < largest(to) / 2 else inf, whole,
                x.fact.error, x.fact.signs)  # fmt: skip
    return f"{x.name}.astype('{to.name}')", lambda dtype: settled(fact, dtype)


@step(0.5)
def precision(d: Draw) -> Written:
    x = d.var("f", exact=True)
    unfit_if(x.dtype.name != "float32" or x.fact.bound > 1000)
    return f"lax.reduce_precision({x.name}, 8, 7)", moved(x)


# Reductions.


def _over(d: Draw, x: Var, filled: bool = False) -> tuple[str, int]:
    """The source text for some axes, and their total number of elements."""
    if d.often(0.2):
        unfit_if(filled and not x.size)
        return "", x.size
    axes = [d.axis(x, filled=filled)]
    if x.ndim > 1 and d.often(0.25):
        axes = sorted({axes[0] % x.ndim, d.axis(x, filled=filled) % x.ndim})
    terms = 1
    for a in axes:
        terms *= x.shape[a]
    words = f", axis={axes[0] if len(axes) == 1 else tuple(axes)}"
    return words + (", keepdims=True" if d.often(0.3) else ""), terms


@step(3, linear=True)
def added(d: Draw) -> Written:
    x = d.var(least=1)
    words, terms = _over(d, x)
    return f"jnp.sum({x.name}{words})", summed(x, terms)


@step(1)
def averaged(d: Draw) -> Written:
    x = d.var("f", least=1)
    words, terms = _over(d, x, filled=True)
    sums = summed(x, terms)

    def rule(dtype):
        fact = sums(dtype)
        return Fact(fact.bound, False, fact.error + 2 * epsilon(dtype) * fact.bound, False)

    return f"jnp.mean({x.name}{words})", rule


@step(4)
def most(d: Draw) -> Written:
    x = d.var(ORDERED, least=1)
    words, _ = _over(d, x, filled=True)
    name = d.one(["max", "min", "max", "min", "nanmax", "nanmin", "ptp"])
    if name == "ptp":
        unfit_if(x.kind == "b" or x.fact.bound == inf)
        fact = Fact(2 * x.fact.bound, x.fact.whole, 2 * x.fact.error, signs=False)
        return f"jnp.ptp({x.name}{words})", lambda dtype: settled(fact, dtype, rounds=2)
    return f"jnp.{name}({x.name}{words})", moved(x, signs=False)


@step(1)
def complex_most(d: Draw) -> Written:
    x = d.var("c", least=1)
    words, _ = _over(d, x, filled=True)
    return f"jnp.{d.one(['max', 'min'])}({x.name}{words})", moved(x, signs=False)


@step(3)
def place_of_most(d: Draw) -> Written:
    x = d.var(ORDERED, least=1, exact=True)
    name = d.one(["argmax", "argmin", "argmax", "argmin", "nanargmax", "nanargmin"])
    words = f", axis={d.axis(x, filled=True)}"
    if d.often(0.2) and x.size:
        words = ""
    return f"jnp.{name}({x.name}{words})", known(400)


@step(1)
def logical(d: Draw) -> Written:
    x = d.var(least=1, exact=True)
    words, _ = _over(d, x)
    return f"jnp.{d.one(['all', 'any', 'count_nonzero'])}({x.name}{words})", known(400)


@step(1)
def multiplied(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    words, terms = _over(d, x)
    unfit_if(x.kind == "f" and not (x.fact.whole and x.exact and x.fact.bound**terms < 1e6))
    bound = x.fact.bound**terms if x.kind == "f" else inf
    return f"jnp.prod({x.name}{words})", known(bound, signs=False)


@step(1)
def reduced(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    a = d.axis(x) % x.ndim
    if d.often():
        least = "-np.inf" if x.kind == "f" else f"jnp.iinfo({x.name}.dtype).min"
        start = f"jnp.asarray({least}, {x.name}.dtype)"
        return f"lax.reduce({x.name}, {start}, lax.max, ({a},))", moved(x, signs=False)
    return f"lax.reduce({x.name}, jnp.asarray(0, {x.name}.dtype), lax.add, ({a},))", summed(
        x, x.shape[a]
    )


@step(5)
def running(d: Draw) -> Written:
    """Several of these over one operand share halos."""
    x = d.var("iuf", least=1)
    a = d.axis(x) % x.ndim
    name = d.one(["cumsum", "cumprod", "cummax", "cummin"])
    words = f"lax.{name}({x.name}, axis={a}{', reverse=True' if d.often(0.3) else ''})"
    if name == "cumsum":
        return words, summed(x, x.shape[a])
    if name == "cumprod":
        bound = max(x.fact.bound, 1) ** x.shape[a] if x.kind == "f" else inf
        unfit_if(x.kind == "f" and not (x.fact.whole and x.exact and bound < 1e6))
        return words, known(bound, signs=False)
    return words, moved(x, signs=False)


@step(2)
def norms(d: Draw) -> Written:
    """Softmax and similar functions: a maximum, a sum, and a quotient."""
    x = d.var("f", least=1)
    a = d.axis(x, filled=True)
    unfit_if(x.fact.bound > 20)
    name = d.one(["softmax", "logsumexp", "log_softmax"])

    def rule(dtype):
        return Fact(45.0, False, 4 * x.fact.error + (x.size + 100) * epsilon(dtype) * 45, False)

    return f"nn.{name}({x.name}, axis={a})", rule


# Contractions.


@step(2)
def matmul(d: Draw) -> Written:
    x = d.var("iufc", least=2)
    y = d.var("iufc", least=2)
    x_last, y_first = x.shape[-1], y.shape[-2]
    unfit_if(x.ndim > 2 or y.ndim > 2)
    if x_last == y_first:
        return f"jnp.matmul({x.name}, {y.name})", product(x, y, x_last)
    if x_last == y.shape[-1]:
        return f"jnp.matmul({x.name}, {y.name}.T)", product(x, y, x_last)
    if x.shape[0] == y_first:
        return f"jnp.matmul({x.name}.T, {y.name})", product(x, y, y_first)
    raise Unfit


@step(2)
def einsum(d: Draw) -> Written:
    x = d.var("iufc", least=1)
    y = d.partner(x, "iufc")
    names = "abc"[: x.ndim]
    unfit_if(x.shape != y.shape or x.ndim > 3)
    out = "".join(n for n in names if d.often())
    terms = 1
    for n, size in zip(names, x.shape, strict=True):
        terms *= 1 if n in out else size
    return f"jnp.einsum('{names},{names}->{out}', {x.name}, {y.name})", product(x, y, terms)


@step(1)
def outer(d: Draw) -> Written:
    x, y = d.var("iufc", least=1), d.var("iufc", least=1)
    unfit_if(x.size * y.size > 400)
    return f"jnp.outer({x.name}, {y.name})", product(x, y)
