"""Interpreters of programs: that evaluate, invert, count and change them."""

from collections import Counter
from functools import wraps

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.api_util import safe_map
from jax.extend import core
from jax.extend.core import primitives


def evaluate(jaxpr, consts, *args, inside=None):
    """Runs a program equation by equation."""
    env = {}

    def read(atom):
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    safe_map(env.__setitem__, jaxpr.invars, args)
    safe_map(env.__setitem__, jaxpr.constvars, consts)
    for eqn in jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        found = eqn.primitive.bind(*safe_map(read, eqn.invars), **params)
        if not eqn.primitive.multiple_results:
            found = [found]
        safe_map(env.__setitem__, eqn.outvars, found)
        if inside is not None:
            inside(eqn, found)
    return safe_map(read, jaxpr.outvars)


def f(x, n):
    def body(carry, a):
        carry = jnp.tanh(carry * a) + jax.nn.relu(carry)
        return carry, carry.sum()

    x, sums = lax.scan(body, x, jnp.arange(3.0))
    x = lax.cond(n > 2, jnp.sin, lambda x: x * 2, x)
    x = lax.while_loop(lambda x: x.sum() < 10, lambda x: x + 1, x)
    return {"x": jax.jit(jnp.exp)(-x), "sums": sums, "sorted": jnp.sort(x)[::-1]}


x = jnp.array([0.5, -1.0, 2.0])
closed, shapes = jax.make_jaxpr(f, return_shape=True)(x, 3)
tree = jax.tree.structure(shapes)
seen = []
found = evaluate(closed.jaxpr, closed.consts, x, 3, inside=lambda e, _: seen.append(e.primitive))
for key, value in jax.tree.unflatten(tree, found).items():
    np.testing.assert_allclose(value, f(x, 3)[key], rtol=1e-6)
kinds = (primitives.scan_p, primitives.cond_p, primitives.while_p, primitives.jit_p)
print("evaluated", [kind in seen for kind in kinds])
staged = jax.jit(lambda x: evaluate(closed.jaxpr, closed.consts, x, 3)[0])
print("staged", staged(x).tolist(), jax.jacfwd(staged)(x).diagonal().tolist())
print("batched", jax.vmap(staged)(jnp.stack([x, 2 * x])).sum(1).tolist())
again = core.jaxpr_as_fun(closed)(x, 3)
print("as function", [a.shape for a in again])


INVERSES = {
    primitives.exp_p: jnp.log,
    primitives.tanh_p: jnp.arctanh,
    primitives.neg_p: jnp.negative,
    primitives.log_p: jnp.exp,
    primitives.sin_p: jnp.arcsin,
    primitives.atanh_p: jnp.tanh,
}


def inverse(fun):
    @wraps(fun)
    def wrapped(*args):
        closed = jax.make_jaxpr(fun)(*args)
        (found,) = inverted(closed.jaxpr, closed.literals, *args)
        return found

    return wrapped


def inverted(jaxpr, consts, *args):
    env = {}

    def read(var):
        return var.val if type(var) is core.Literal else env[var]

    safe_map(env.__setitem__, jaxpr.outvars, args)
    safe_map(env.__setitem__, jaxpr.constvars, consts)
    for eqn in jaxpr.eqns[::-1]:
        values = safe_map(read, eqn.outvars)
        if eqn.primitive is primitives.jit_p:
            inner = eqn.params["jaxpr"]
            values = inverted(inner.jaxpr, inner.consts, *values)
        elif eqn.primitive not in INVERSES:
            raise NotImplementedError(f"{eqn.primitive} does not have a registered inverse")
        else:
            values = [INVERSES[eqn.primitive](*values)]
        safe_map(env.__setitem__, eqn.invars, values)
    return safe_map(read, jaxpr.invars)


def g(x):
    return jax.jit(lambda y: jnp.exp(-y))(jnp.tanh(x))


back = inverse(g)
print("inverse", float(back(g(0.3))), float(jax.grad(back)(0.7)))
print("batched", jax.vmap(back)(jnp.array([0.4, 2.0])).tolist())
print("of the inverse", float(inverse(back)(0.25)), float(g(0.25)))
try:
    inverse(lambda x: lax.abs(x))(1.0)
except NotImplementedError as error:
    print(error)


def operations(jaxpr, counts):
    """The number of uses of each operation, including those in inner programs."""
    for eqn in jaxpr.eqns:
        counts[eqn.primitive.name] += 1
        for inner in core.jaxprs_in_params(eqn.params):
            operations(inner, counts)
    return counts


def flops(fun, *args):
    """Multiplications in products of matrices."""
    total = 0
    for eqn in jax.make_jaxpr(fun)(*args).eqns:
        if eqn.primitive is primitives.dot_general_p:
            (left, _), _ = eqn.params["dimension_numbers"]
            a = eqn.invars[0].aval
            total += np.prod(eqn.outvars[0].aval.shape) * np.prod([a.shape[d] for d in left])
    return int(total)


made = jax.make_jaxpr(lambda x: jax.jit(jnp.sin)(x) * jnp.cos(jnp.sin(x)))(x)
counts = operations(made.jaxpr, Counter())
print("counts", counts["sin"], counts["cos"], counts["mul"])
print("flops", flops(lambda a, b: jnp.tanh(a @ b) @ b, np.ones((4, 8)), np.ones((8, 8))))

plain = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(x)
cosine = [
    e.replace(primitive=primitives.cos_p) if e.primitive is primitives.sin_p else e
    for e in plain.jaxpr.eqns
]
changed = core.ClosedJaxpr(plain.jaxpr.replace(eqns=cosine), plain.consts)
print("changed", core.jaxpr_as_fun(changed)(x)[0].tolist())
print("types", [str(v.aval) for v in plain.jaxpr.invars], [a.shape for a in plain.out_avals])
first = plain.jaxpr.eqns[0]
result = first.outvars[0]
print("variables", isinstance(result, core.Var), isinstance(result, core.Literal))
info = plain.jaxpr.debug_info
print("source", first.source_info is not None, info.func_name, set(plain.effects))
made = core.Jaxpr([], plain.jaxpr.invars, plain.jaxpr.outvars, plain.jaxpr.eqns)
print("made", jax.core.eval_jaxpr(made, (), x)[0].tolist())
