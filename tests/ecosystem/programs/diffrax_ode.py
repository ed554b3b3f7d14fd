"""Differential equations solved with gradients: a decay, stiff and stochastic ones, events."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax


def field(t, y, args):
    return -args * y


@jax.jit
def final(rate, y0):
    return dfx.diffeqsolve(
        dfx.ODETerm(field), dfx.Tsit5(), 0.0, 2.0, 0.1, y0, rate,
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-6),
    ).ys[-1]  # fmt: skip


y0 = jnp.array([1.0, 2.0])
np.testing.assert_allclose(final(0.5, y0), np.exp(-1) * np.array([1, 2]), rtol=1e-4)
rate, start = jax.grad(lambda r, y: final(r, y).sum(), (0, 1))(0.5, y0)
np.testing.assert_allclose(rate, -2 * np.exp(-1) * 3, rtol=1e-3)
np.testing.assert_allclose(start, np.exp(-1) * np.ones(2), rtol=1e-3)
print("gradients", float(rate), start.tolist())
print("batch", jax.vmap(lambda r: final(r, y0).sum())(jnp.array([0.1, 0.5, 1.0])).tolist())


def pendulum(t, y, p):
    return jnp.stack([y[1], -p * jnp.sin(y[0])])


def solved(p, adjoint):
    ts = jnp.linspace(0, 3, 7)
    return dfx.diffeqsolve(
        dfx.ODETerm(pendulum), dfx.Dopri5(), 0.0, 3.0, 0.05, jnp.array([1.0, 0.0]), p,
        saveat=dfx.SaveAt(ts=ts), adjoint=adjoint,
        stepsize_controller=dfx.PIDController(rtol=1e-5, atol=1e-5),
    ).ys  # fmt: skip


for adjoint in (dfx.RecursiveCheckpointAdjoint(), dfx.BacksolveAdjoint()):
    ys, pull = jax.vjp(lambda p, a=adjoint: solved(p, a), 2.0)
    print(type(adjoint).__name__, ys[-1].tolist(), float(pull(jnp.ones_like(ys))[0]))
forward = jax.jvp(lambda p: solved(p, dfx.ForwardMode())[-1], (2.0,), (1.0,))[1]
print("forward", forward.tolist())
target = solved(2.0, dfx.RecursiveCheckpointAdjoint())
p, optimizer = jnp.array(1.6), optax.adam(0.1)
state = optimizer.init(p)


def loss(p):
    return jnp.mean((solved(p, dfx.RecursiveCheckpointAdjoint()) - target) ** 2)


@jax.jit
def step(p, state):
    value, grad = jax.value_and_grad(loss)(p)
    updates, state = optimizer.update(grad, state)
    return optax.apply_updates(p, updates), state, value


for _ in range(25):
    p, state, value = step(p, state)
    value = float(value)
np.testing.assert_allclose(p, 2.0, atol=0.1)
print("fitted", float(p))
decays = dfx.ODETerm(lambda t, y, _: jnp.stack([-100 * y[0] + y[1], -y[1]]))
stiff = dfx.diffeqsolve(
    decays, dfx.Kvaerno3(), 0.0, 1.0, 0.01, jnp.ones(2),
    stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-4),
)  # fmt: skip
print("stiff", stiff.ys[-1].tolist())
path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=jax.random.key(0))
terms = dfx.MultiTerm(
    dfx.ODETerm(lambda t, y, _: -y), dfx.ControlTerm(lambda t, y, _: 0.1 * y, path)
)
noisy = dfx.diffeqsolve(terms, dfx.Heun(), 0.0, 1.0, 0.02, 1.0)
print("stochastic", float(noisy.ys[-1]))
dense = dfx.diffeqsolve(
    dfx.ODETerm(field), dfx.Tsit5(), 0.0, 1.0, 0.1, y0, 1.0, saveat=dfx.SaveAt(dense=True)
)
print("dense", dense.evaluate(0.35).tolist(), dense.derivative(0.35).tolist())
event = dfx.Event(lambda t, y, args, **_: y[0] - 0.5)
ended = dfx.diffeqsolve(dfx.ODETerm(field), dfx.Tsit5(), 0.0, 5.0, 0.1, y0, 1.0, event=event)
print("event", float(ended.ts[-1]) > 0.6, int(ended.stats["num_steps"]) < 10)
