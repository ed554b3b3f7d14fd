"""Steps of one or two operands, one row each: the rest of NumPy's names.

A row is an expression of x and y, the kinds of x, its minimum number of dimensions, and a fact
on the result: `moved`, `exact` (integers up to a bound), or `sums` of so many elements. {a} is
an axis, {n} its size, {k} a position along it, {w} small weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tests.values.programs.draw import MOST, Draw
from tests.values.programs.facts import Fact, Rule, Var, epsilon, known, moved, summed, unfit_if
from tests.values.programs.steps import Written, step

ANY, ORDERED, REAL = "biufc", "biuf", "iuf"


@dataclass(frozen=True)
class Row:
    text: str
    kinds: str = ANY
    least: int = 1
    gives: str = "moved"
    bound: float = 400
    exact: bool = False
    filled: bool = True
    ndim: int | None = None
    signs: bool = True


MOVED = [
    Row("jnp.flip({x}, {a})"), Row("jnp.rot90({x}, {k})", least=2),
    Row("jnp.swapaxes({x}, 0, {a})"),
    Row("jnp.moveaxis({x}, {a}, 0)"), Row("jnp.ravel({x})"), Row("jnp.tril({x}, 1)", least=2),
    Row("jnp.triu({x})", least=2), Row("jnp.diagonal({x}, 1)", least=2),
    Row("jnp.diag({x})", ndim=1), Row("jnp.delete({x}, {k}, axis={a})"),
    Row("jnp.insert({x}, {k}, 1, axis={a})", gives="fill"), Row("jnp.resize({x}, (3, 5))"),
    Row("jnp.array_split({x}, 3, axis={a})[1]"), Row("jnp.split({x}, {n}, axis={a})[{k}]"),
    Row("jnp.append({x}, {x}[:1], axis=0)"), Row("jnp.hstack([{x}, {x}])"),
    Row("jnp.vstack([{x}, {x}])"), Row("jnp.dstack([{x}, {x}])"),
    Row("jnp.compress(np.arange({n}) % 2 == 0, {x}, axis={a})"),
    Row("jnp.select([{x} > 1, {x} < 0], [{x}, -{x}], 0)", "if", exact=True, gives="fill",
        signs=False),
    Row("jnp.fill_diagonal({x}, 1, inplace=False)", least=2, gives="fill"),
    Row("jnp.partition({x}, {k}, axis={a})[..., :0]", REAL, exact=True),
    Row("jnp.take({x}, {i}, axis={a}, mode='clip')"),
    Row("jnp.broadcast_arrays({x}, {x}[:1])[1]"), Row("jnp.meshgrid({x}, {x})[1]", ndim=1),
    Row("jnp.block([[{x}], [{x}]])", least=2), Row("jnp.trim_zeros({w})", gives="fill"),
    Row("jnp.unstack({x}, axis={a})[{k}]"), Row("jnp.real({x})"), Row("jnp.imag({x})", "c"),
    Row("lax.map(lambda r: r[::-1], {x})", least=2), Row("lax.rev({x}, (0,))"),
    Row("lax.index_in_dim({x}, {k}, {a})"), Row("lax.slice_in_dim({x}, 0, {n}, 2, {a})"),
    Row("lax.dynamic_index_in_dim({x}, {x}.size, {a})"),
    Row("lax.dynamic_slice_in_dim({x}, {k} + 2, {n} - {k}, {a})"),
    Row("lax.dynamic_update_index_in_dim({x}, lax.index_in_dim({x}, 0, 0), {k}, 0)"),
    Row("lax.dynamic_update_slice_in_dim({x}, {x}[:1], -{k} - 3, 0)"),
    Row("lax.collapse({x}, 0, {x}.ndim)", least=2), Row("lax.broadcast({x}, (2,))"),
    Row("sw.checkpoint(lambda r: jnp.flip(r))({x})"), Row("jnp.flipud({x})", "f"),
    Row("lax.bitcast_convert_type(lax.bitcast_convert_type({x}, 'uint32'), 'float32')", "f"),
    Row("jnp.copysign(jnp.abs({x}), 1)", "f"), Row("jnp.fix({x})", "f", exact=True),
    Row("jnp.put({x}, {i}, 1, mode='wrap', inplace=False)", gives="fill"),
    Row("jnp.piecewise({x}, [{x} > 0], [lambda r: r, lambda r: -r])", "if", exact=True,
        signs=False),
    Row("jnp.nanmax({x}, axis={a}, initial=0)", "f", gives="fill", signs=False),
    Row("jnp.max({x}, axis={a}, where={x} < 2, initial=-9)", "if", gives="fill", bound=9,
        exact=True, signs=False),
    Row("jnp.amin({x}, axis={a}, keepdims=True)", REAL, signs=False),
    Row("lax.reduce_max({x}, ({p},))", REAL, signs=False),
    Row("lax.reduce_min({x}, ({p},))", REAL, signs=False),
]  # fmt: skip

EXACT = [
    Row("jnp.bincount(jnp.ravel({x}).astype('int32') & 7, length=9)", "bi", gives="exact"),
    Row("jnp.unique({x}, size=6, fill_value=0)", REAL, exact=True, gives="fill", signs=False),
    Row("jnp.unique_counts({x}, size=5).counts", "iu", gives="exact"),
    Row("jnp.isin({x}, {x}[:1])", REAL, gives="exact", exact=True),
    Row("jnp.digitize({x}, np.array([-1, 0, 2], 'int32'))", "if", gives="exact", exact=True),
    Row("jnp.histogram({x}, 4, (-3., 3.))[0]", "if", gives="exact", exact=True),
    Row("jnp.argpartition({x}, {k}, axis={a})[..., :0]", REAL, gives="exact", exact=True),
    Row("jnp.lexsort(({x}, {x}[::-1]))", REAL, gives="exact", exact=True, ndim=1),
    Row("jnp.argwhere({x}, size=4, fill_value=-1)", ORDERED, gives="exact", exact=True),
    Row("jnp.flatnonzero({x}, size=4)", ORDERED, gives="exact", exact=True),
    Row("jnp.logical_xor({x}, {x} > 1)", ORDERED, gives="exact", exact=True),
    Row("jnp.array_equal({x}, {x}[::-1])", ORDERED, gives="exact", exact=True),
    Row("jnp.allclose({x}, {x}[:1])", "if", gives="exact", exact=True),
    Row("nn.one_hot(jnp.clip({x}, 0, 9).astype('int32'), 5)", "iu", gives="exact"),
    Row("jnp.invert({x}) + {x}", "iu", gives="exact", bound=inf),
    Row("lax.reduce_xor({x}, ({p},))", "iu", gives="exact", bound=inf),
    Row("lax.reduce_and({x} > 1, ({p},))", "iu", gives="exact"),
    Row("sw.ops.segment_prod({x}[:3], np.array([0, 3, 3], 'int32')[:{n0}], 4)", "iu", gives="exact",
        bound=inf),
]  # fmt: skip

SUMS = [
    Row("jnp.nansum({x}, axis={a})", "f", gives="sums"),
    Row("jnp.nancumsum({x}, axis={a})", "f", gives="sums"),
    Row("jnp.trace({x})", ANY, 2, gives="sums"), Row("jnp.ediff1d({x})", REAL, gives="sums"),
    Row("jnp.trapezoid({x}, axis={a})", "f", gives="real"),
    Row("jnp.gradient({x}, axis={a})", "f", gives="real"),
    Row("jnp.convolve({x}, {w})", REAL, ndim=1, gives="sums"),
    Row("jnp.correlate({x}, {w})", REAL, ndim=1, gives="sums"),
    Row("jnp.kron({x}, {w})", REAL, gives="sums", ndim=1),
    Row("jnp.vander({x}, 2)", "if", ndim=1, gives="fill"),
    Row("jnp.nanmean({x}, axis={a})", "f", gives="real"),
    Row("jnp.average({x}, axis={a})", "f", gives="real"),
    Row("jnp.cumulative_sum({x}, axis={p}, include_initial=True)", REAL, gives="sums"),
    Row("sw.jvp(lambda r: jnp.cumsum(r, axis={p}), ({x},), ({x},))[1]", "f", gives="sums"),
    Row("sw.vjp(lambda r: r[{k}:], {x})[1]({x}[{k}:])[0]", "f", gives="sums", ndim=1),
    Row("sw.vjp(lambda r: jnp.flip(jnp.append(r, r)), {x})[1](jnp.append({x}, {x}))[0]", "f",
        gives="sums"),
    Row("sw.vjp(lambda r: r[::2], {x})[1]({x}[::2])[0]", "f", gives="sums"),
    Row("sw.vjp(lambda r: r[{i0}], {x})[1]({x}[{i0}])[0]", "f", gives="sums"),
    Row("jnp.linalg.norm({x}, ord=jnp.inf)", "f", ndim=1, signs=False),
    Row("jnp.linalg.norm({x}, ord=1, axis={p})", "f", gives="sums"),
]  # fmt: skip


@step(8)
def moved_by_name(d: Draw) -> Written:
    return _row(d, d.one(MOVED))


@step(3)
def exact_by_name(d: Draw) -> Written:
    return _row(d, d.one(EXACT))


@step(4)
def sums_by_name(d: Draw) -> Written:
    return _row(d, d.one(SUMS))


def _row(d: Draw, row: Row) -> Written:
    x = d.var(row.kinds, least=row.ndim or row.least, exact=row.exact,
              like=lambda v: v.ndim == row.ndim or row.ndim is None)  # fmt: skip
    a = d.axis(x, filled=row.filled)
    n = x.shape[a]
    unfit_if(not n or x.size > MOST // 4)
    many = [d.between(-1, n) for _ in range(3)]
    text = row.text.format(
        x=x.name,
        a=a,
        p=a % x.ndim,
        n=n,
        k=d.between(0, n - 1),
        n0=x.shape[0],
        i=f"np.array({many}, 'int32')",
        i0=f"np.array({d.indices(x.shape[0] or 1, 4)}, 'int32')",
        w="np.array([1, -2, 0], 'int32')",
    )
    return text, _rule(row, x)


def _rule(row: Row, x: Var) -> Rule:
    fact = x.fact
    if row.gives == "exact":
        return known(row.bound)
    if row.gives == "moved":
        return moved(x, signs=row.signs)
    if row.gives == "fill":
        bound = max(fact.bound, row.bound if row.bound < 400 else 2)
        return known(bound, whole=fact.whole, error=fact.error, signs=row.signs and fact.signs)
    return summed(x, x.size + 3, 3.0) if row.gives == "sums" else _rounded(x)


def _rounded(x: Var) -> Rule:
    sums = summed(x, x.size + 3)

    def rule(dtype):
        fact = sums(dtype)
        rounds = 4 * epsilon(dtype) * fact.bound
        return Fact(fact.bound, False, fact.error + rounds, signs=False)

    return rule
