"""Steps that contain functions: loops, branches, vmap, derivatives. Bodies are random steps."""

from __future__ import annotations

from dataclasses import replace

from tests.values.programs.draw import Draw
from tests.values.programs.facts import Fact, Var, epsilon, known, moved, settled, summed, unfit_if
from tests.values.programs.make import inner_step
from tests.values.programs.steps import Written, step


@step(3)
def vmap(d: Draw) -> Written:
    x = d.var(least=1)
    a = d.between(0, x.ndim - 1)
    unfit_if(not x.shape[a])
    row = replace(x, name=f"r{d.depth}", shape=x.shape[:a] + x.shape[a + 1 :])
    text, rule = inner_step(d, [row])
    out = f", out_axes={d.one([0, -1])}" if d.often(0.3) else ""
    return f"sw.vmap(lambda {row.name}: {text}, in_axes={a}{out})({x.name})", rule


@step(1)
def jit(d: Draw) -> Written:
    x = d.var(least=1)
    inside = replace(x, name=f"r{d.depth}")
    text, rule = inner_step(d, [inside])
    return f"sw.jit(lambda {inside.name}: {text})({x.name})", rule


@step(3)
def counted(d: Draw) -> Written:
    """The derivative of a sum of moved elements: the number of uses of each."""
    x = d.var("f", least=1)
    inside = replace(x, name=f"r{d.depth}")
    text, _ = inner_step(d, [inside], lambda s: s.linear)
    rounds = 8 * 400 * epsilon(x.dtype) if x.dtype.name != "float32" else 0.0
    fact = known(400, error=rounds * 400, signs=False)
    return f"sw.grad(lambda {inside.name}: jnp.sum({text}).astype('float32'))({x.name})", fact


@step(2)
def weighed(d: Draw) -> Written:
    """The derivative of a maximum, a product, a running maximum, … with different weights."""
    x = d.var("f", least=1, exact=True)
    unfit_if(x.dtype.name != "float32" or not x.size or x.fact.bound > 8)
    a = d.between(0, x.ndim - 1)
    body, bound = d.one([
        (f"jnp.max(r, axis={a})", 1), (f"jnp.min(r, axis={a})", 1), ("r * r", 2 * x.fact.bound),
        (f"jnp.sort(r, axis={a})", 1), (f"lax.cummax(r, axis={a})", x.size),
        (f"jnp.cumsum(r, axis={a})", x.size), ("jnp.where(r > 0, r, -r)", 1),
        ("jnp.maximum(r, 0)", 1), (f"jnp.roll(r, 2, axis={a})", 1), ("r.at[::2].multiply(3)", 3),
        ("lax.dynamic_update_slice(r, r[:1], (" + "jnp.int32(1), " * x.ndim + "))", 2),
    ])  # fmt: skip
    loss = f"lambda r, w: jnp.sum(({body}) * jnp.resize(w, ({body}).shape))"
    error = 16 * x.size * bound * epsilon(x.dtype) * 3
    weights = "jnp.array([1., -2., 3.], 'float32')"
    return f"sw.grad({loss})({x.name}, {weights})", known(
        3 * bound, whole=False, error=error, signs=False
    )


@step(2)
def scan(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    unfit_if(not x.shape[0])
    row = replace(x, name="r", shape=x.shape[1:])
    n = x.shape[0]
    larger = "jnp.where(r > c, r, c)"
    carry = d.one(["jnp.maximum(c, r)", "jnp.minimum(c, r)", "c + r", "r", larger])
    unfit_if(carry == larger and not x.exact)
    sums = carry == "c + r"
    c = Var("c", row.shape, x.dtype, moved(x, signs=False)(x.dtype))
    if sums:
        c = replace(c, fact=summed(x, n + 1)(x.dtype))
    text, rule = inner_step(d, [row, c])
    back = ", reverse=True" if d.often(0.3) else ""
    given = f"{x.name}[0], {x.name}{back}"
    if d.often(0.3):
        return f"lax.scan(lambda c, r: ({carry}, r), {given})[0]", lambda _: c.fact
    rules = [lambda _: c.fact, rule]
    return f"lax.scan(lambda c, r: ({carry}, {text}), {given})", rules


@step(2)
def branches(d: Draw) -> Written:
    x = d.var(least=1)
    inside = replace(x, name="r")
    one, rule = inner_step(d, [inside], like=x)
    other = d.one(["r", "jnp.flip(r)", "jnp.roll(r, 1)"])
    test = d.var("biuf", like=lambda v: v.exact and v.size)
    where = ", ".join(["0"] * test.ndim)
    condition = f"{test.name}[{where}] > 0" if test.ndim else f"{test.name} > 0"
    back = d.one([(one, other), (other, one)])

    def both(dtype):
        f, g = rule(dtype), moved(x)(dtype)
        return settled(Fact(max(f.bound, g.bound), f.whole and g.whole, max(f.error, g.error),
                            f.signs and g.signs), dtype)  # fmt: skip

    return f"lax.cond({condition}, lambda r: {back[0]}, lambda r: {back[1]}, {x.name})", both


@step(2)
def loops(d: Draw) -> Written:
    """Bodies that may run any number of times."""
    x = d.var("iuf", least=1)
    unfit_if(not x.size)
    a, n = d.between(0, x.ndim - 1), d.between(0, 4)
    bodies = [f"jnp.roll(r, 1, axis={a})", "jnp.flip(r)", f"lax.cummax(r, axis={a})",
              f"jnp.maximum(r, jnp.min(r, axis={a}, keepdims=True))", "jnp.minimum(r, 2)",
              "r.at[0].set(r[-1])", "r.at[1:].max(r[:-1])"]  # fmt: skip
    if x.exact:
        bodies += [f"jnp.sort(r, axis={a})"]
    rest = ", ".join(["jnp.int32(0)"] * (x.ndim - 1))
    walking = f"lax.dynamic_update_slice(r, r[-1:], (i, {rest}))"
    if d.often():
        body = d.one([*bodies, walking])
        text = f"lax.fori_loop(0, {n}, lambda i, r: {body}, {x.name})"
    else:
        start = f"(jnp.int32(0), {x.name})"
        text = (
            f"lax.while_loop(lambda s: s[0] < {n}, "
            f"lambda s: (s[0] + 1, (lambda r: {d.one(bodies)})(s[1])), {start})[1]"
        )
    return text, known(max(x.fact.bound, 2), whole=x.fact.whole, error=x.fact.error, signs=False)


@step(1)
def associative(d: Draw) -> Written:
    x = d.var("iuf", least=1)
    a = d.axis(x, filled=True) % x.ndim
    name = d.one(["maximum", "minimum"])
    return f"lax.associative_scan(jnp.{name}, {x.name}, axis={a})", moved(x, signs=False)
