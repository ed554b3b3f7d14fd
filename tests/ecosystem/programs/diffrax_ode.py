"""An ODE that is solved with gradients, a linear system, and a root."""

import diffrax
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix


def field(t, y, args):
    return -args * y


def solve(rate):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), t0=0.0, t1=2.0, dt0=0.1, y0=jnp.array(1.5),
        args=rate, saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 5)),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7),
    ).ys


rate = jnp.array(0.7)
ys = jax.jit(solve)(rate)
np.testing.assert_allclose(ys, 1.5 * np.exp(-0.7 * np.linspace(0, 2, 5)), rtol=1e-4)
slope = jax.grad(lambda r: solve(r)[-1])(rate)
np.testing.assert_allclose(slope, -2 * 1.5 * np.exp(-1.4), rtol=1e-3)
print("end", float(ys[-1]), float(slope))

rng = np.random.default_rng(0)
a = rng.standard_normal((5, 5)).astype(np.float32)
a = a @ a.T + 5 * np.eye(5, dtype=np.float32)
b = rng.standard_normal(5).astype(np.float32)
operator = lineax.MatrixLinearOperator(a, lineax.positive_semidefinite_tag)
x = lineax.linear_solve(operator, b).value
np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-3)
x = lineax.linear_solve(operator, b, lineax.CG(rtol=1e-6, atol=1e-6)).value
np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-3)


def root(c):
    solver = optimistix.Newton(rtol=1e-6, atol=1e-6)
    return optimistix.root_find(lambda y, c: y**2 - c, solver, jnp.array(1.0), c).value


print("root", float(root(2.0)), float(jax.grad(root)(2.0)))
