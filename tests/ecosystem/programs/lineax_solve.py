"""Linear systems of several structures, with derivatives and batches."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

rng = np.random.default_rng(0)
A = rng.standard_normal((5, 5)).astype(np.float32) + 4 * np.eye(5, dtype=np.float32)
S = (A @ A.T).astype(np.float32)
b = rng.standard_normal(5).astype(np.float32)
tall = rng.standard_normal((7, 3)).astype(np.float32)
rhs = rng.standard_normal(7).astype(np.float32)


def solve(a, b, solver, tags=()):
    return lx.linear_solve(lx.MatrixLinearOperator(a, tags), b, solver).value


positive = lx.positive_semidefinite_tag
for name, solver, tags in (
    ("lu", lx.LU(), ()),
    ("qr", lx.QR(), ()),
    ("svd", lx.SVD(), ()),
    ("cholesky", lx.Cholesky(), positive),
    ("cg", lx.CG(1e-6, 1e-6), positive),
):
    a = S if tags else A
    x = jax.jit(lambda a, b, s=solver, t=tags: solve(a, b, s, t))(a, b)
    np.testing.assert_allclose(a @ x, b, atol=1e-2)
    grad = jax.grad(lambda a, s=solver, t=tags: (solve(a, b, s, t) ** 2).sum())(jnp.asarray(a))
    print(name, x.tolist(), float(jnp.abs(grad).sum()))
x = lx.linear_solve(lx.MatrixLinearOperator(tall), rhs, lx.QR()).value
np.testing.assert_allclose(x, np.linalg.lstsq(tall, rhs, rcond=None)[0], rtol=1e-4)
print("least squares", x.tolist())
print("jvp", jax.jvp(lambda b: solve(A, b, lx.LU()), (b,), (jnp.ones(5),))[1].tolist())
print("batch", jax.vmap(lambda b: solve(A, b, lx.LU()))(jnp.stack([b, 2 * b])).sum(1).tolist())
band = lx.TridiagonalLinearOperator(jnp.full(5, 4.0), jnp.ones(4), jnp.ones(4))
print("tridiagonal", lx.linear_solve(band, b, lx.Tridiagonal()).value.tolist())
print(
    "diagonal", lx.linear_solve(lx.DiagonalLinearOperator(jnp.arange(1.0, 6.0)), b).value.tolist()
)
function = lx.FunctionLinearOperator(lambda x: A @ x, jax.eval_shape(lambda: jnp.asarray(b)))
print("function", lx.linear_solve(function, b, lx.AutoLinearSolver(well_posed=True)).value.tolist())
jacobian = lx.JacobianLinearOperator(lambda x, _: jnp.sin(x) + A @ x, jnp.asarray(b))
print("jacobian", lx.linear_solve(jacobian, b, lx.LU()).value.tolist(), jacobian.T.mv(b).tolist())
tree = {"a": jnp.ones(2), "b": jnp.ones(())}
identity = lx.IdentityLinearOperator(jax.eval_shape(lambda: tree))
halves = lx.linear_solve(identity * 2, tree).value
print("tree", {k: v.tolist() for k, v in halves.items()})
found = lx.linear_solve(
    lx.MatrixLinearOperator(jnp.zeros((2, 2))), jnp.ones(2), lx.LU(), throw=False
)
print("failed", found.result == lx.RESULTS.successful)
try:
    lx.linear_solve(lx.MatrixLinearOperator(jnp.zeros((2, 2))), jnp.ones(2), lx.LU())
except Exception as error:
    print("refused", "singular" in str(error).lower() or "non-finite" in str(error))
