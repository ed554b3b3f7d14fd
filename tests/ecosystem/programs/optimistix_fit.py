"""Roots, fixed points, minima and least squares, with derivatives through the solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx

rng = np.random.default_rng(0)
t = np.linspace(0, 2, 20).astype(np.float32)
data = (2.0 * np.exp(-1.5 * t) + 0.01 * rng.standard_normal(20)).astype(np.float32)


def residuals(p, args):
    return p["scale"] * jnp.exp(-p["rate"] * t) - args


start = {"scale": jnp.array(1.0), "rate": jnp.array(1.0)}
for solver in (optx.LevenbergMarquardt(1e-5, 1e-5), optx.Dogleg(1e-5, 1e-5)):
    found = optx.least_squares(residuals, solver, start, data, max_steps=64)
    print(type(solver).__name__, float(found.value["scale"]), float(found.value["rate"]))


def rate(data):
    return optx.least_squares(residuals, optx.LevenbergMarquardt(1e-5, 1e-5), start, data).value[
        "rate"
    ]


grad = jax.jit(jax.grad(rate))(jnp.asarray(data))
moved = data.copy()
moved[5] += 0.05
np.testing.assert_allclose((rate(moved) - rate(data)) / 0.05, grad[5], rtol=0.1)
print("gradient", float(jnp.abs(grad).sum()))


def rosenbrock(x, a):
    return (a - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2


adam = optx.OptaxMinimiser(optax.adam(0.05), 1e-4, 1e-4)
for solver in (optx.BFGS(1e-4, 1e-4), optx.NelderMead(1e-4, 1e-4), adam):
    found = optx.minimise(rosenbrock, solver, jnp.zeros(2), 1.0, max_steps=2000, throw=False)
    np.testing.assert_allclose(found.value, [1, 1], atol=0.05)
    print(type(solver).__name__, found.result == optx.RESULTS.successful)


def root(a):
    newton = optx.Newton(1e-6, 1e-6)
    return optx.root_find(lambda x, a: jnp.tanh(x) + x - a, newton, 0.5, a).value


print("root", float(root(1.0)), float(jax.grad(root)(1.0)))
print("batch", jax.vmap(root)(jnp.array([0.5, 1.0, 1.5])).tolist())
bisected = optx.root_find(
    lambda x, _: x**3 - 2, optx.Bisection(1e-5, 1e-5), 1.0, options={"lower": 0.0, "upper": 2.0}
)
print("bisected", float(bisected.value))
fixed = optx.fixed_point(
    lambda x, a: jnp.cos(a * x), optx.FixedPointIteration(1e-5, 1e-5), 0.5, 1.0
)
print("fixed", float(fixed.value))
