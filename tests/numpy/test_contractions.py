"""Products: each call against jax.numpy and NumPy; plans, gradients, errors, tracing cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.base.errors import ShapeError
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.products import einsum as subscripts
from shardwise._src.transforms.stage import stage
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases

RNG = np.random.default_rng(4)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


VALUES = {
    "s": np.float32(2), "v": normal(3), "u": normal(4), "a": normal(2, 3), "b": normal(3, 4),
    "sq": normal(3, 3), "t": normal(5, 2, 3), "q": normal(5, 3, 4), "o": normal(1, 3, 4),
    "r": normal(5, 1, 2, 3), "i": RNG.integers(-5, 5, (3, 3)).astype(np.int8),
    "z": (normal(2, 3) + 1j * normal(2, 3)).astype(np.complex64),
    "h": normal(2, 3, dtype=np.float16), "p": normal(2, 2), "k": np.arange(3) > 0,
}


def names(module, asarray):
    found = {k: asarray(x) for k, x in VALUES.items()}
    found["bf"] = found["b"].astype("bfloat16")
    found["weak"] = module.broadcast_to(2.0, (3, 2))
    return found | {"m": module, "np": np}


def compare(expression):
    came = eval(expression, names(swnp, swnp.asarray))
    wanted = eval(expression, names(jnp, jnp.asarray))
    for fact in ("shape", "dtype", "weak_type"):
        assert getattr(came, fact) == getattr(wanted, fact)
    loose = 2e-2 if came.dtype.name in ("bfloat16", "float16") else 2e-5
    np.testing.assert_allclose(
        np.asarray(came, complex), np.asarray(wanted, complex), rtol=loose, atol=loose
    )


PRODUCTS = """
m.matmul(a, b); m.matmul(v, b); m.matmul(a, v); m.matmul(v, v); m.matmul(t, b); m.matmul(a, q)
m.matmul(t, q); m.matmul(t, o); m.matmul(r, q); m.matmul(v, q); m.matmul(t, v); m.matmul(r, b)
m.matmul(i, i); m.matmul(z, b); m.matmul(h, b); m.matmul(h, bf); m.matmul(a, weak); m.matmul(k, b)
m.matmul(weak, a); m.matmul(weak, weak.T); m.matmul(a, bf, preferred_element_type=np.float32)
m.matmul(h, h.T, preferred_element_type=np.float32)
m.matmul(i, i, preferred_element_type=np.int32); m.matmul(a, b, precision="highest")
m.matmul(a[:, :0], b[:0]); m.matmul(a[:0], b); m.dot(a, b); m.dot(s, a); m.dot(a, 2); m.dot(v, v)
m.dot(t, q); m.dot(v, q); m.dot(i, i); m.dot(t, v); m.dot(h, b); m.dot(2, 3.0)
m.dot(a, b, precision=("high", "default")); m.vdot(z, a); m.vdot(a, z); m.vdot(v, v); m.vdot(z, z)
m.vdot(i, sq); m.inner(a, sq); m.inner(v, v); m.inner(t, a); m.inner(a, 3.0); m.outer(v, u)
m.outer(a, i); m.outer(z, 2); m.vecdot(a, a); m.vecdot(z, a); m.vecdot(t, a)
m.vecdot(a, sq[:2], axis=0); m.vecdot(r, t); m.matvec(a, v); m.matvec(t, v); m.matvec(t, t[:, 0])
m.vecmat(v, b); m.vecmat(z, b); m.vecmat(a, b); m.tensordot(a, b, 1); m.tensordot(a, a)
m.tensordot(t, q, ((0, 2), (0, 1))); m.tensordot(a, b, (1, 0)); m.tensordot(a, u, 0)
m.tensordot(t, a, [[-1, 1], [1, 0]]); m.tensordot(i, b, 1); m.kron(a, b); m.kron(v, a)
m.kron(i, a); m.kron(t, a); m.kron(2, v); m.cross(v, v[::-1]); m.cross(a, sq[:2])
m.cross(p, p[::-1]); m.cross(p, a); m.cross(a, p); m.cross(sq, sq.T, axis=0)
m.cross(a.T, sq[:2], axisa=0, axisc=0); m.cross(v, sq); m.cross(i, sq); m.trace(sq); m.trace(i)
m.trace(a, 1); m.trace(a, -1); m.trace(t, axis1=2, axis2=0); m.trace(z); m.trace(h); m.trace(a, 9)
m.trace(sq, dtype=int); m.trace(k[:, None] & k); m.linalg.norm(a); m.linalg.norm(v)
m.linalg.norm(v, 1); m.linalg.norm(v, np.inf); m.linalg.norm(v, -np.inf); m.linalg.norm(v, 0)
m.linalg.norm(v, 3); m.linalg.norm(v, -1.5); m.linalg.norm(a, 1); m.linalg.norm(a, -1)
m.linalg.norm(a, np.inf); m.linalg.norm(a, -np.inf); m.linalg.norm(a, "fro")
m.linalg.norm(t, axis=(0, 2)); m.linalg.norm(t, 1, (2, 0), True); m.linalg.norm(a, axis=0)
m.linalg.norm(z); m.linalg.norm(z, 1); m.linalg.norm(i); m.linalg.norm(t, keepdims=True)
m.linalg.norm(a, 1, 1, True); m.linalg.norm(h); m.linalg.vector_norm(t)
m.linalg.vector_norm(t, axis=(0, 1)); m.linalg.vector_norm(a, axis=0, ord=1)
m.linalg.matrix_norm(t); m.linalg.matrix_norm(t, ord=1, keepdims=True)
m.linalg.matrix_power(sq, 5); m.linalg.matrix_power(sq, 0); m.linalg.matrix_power(t[:, :, :2], 3)
m.linalg.multi_dot([a, b, b.T, v]); m.linalg.multi_dot([v, b]); m.linalg.multi_dot([a, b, b.T])
m.linalg.outer(v, u); m.linalg.trace(t); m.linalg.cross(v, v[::-1])
m.linalg.tensordot(a, b, axes=1); m.linalg.vecdot(a, a, axis=0); m.linalg.matmul(a, b)
m.linalg.matrix_transpose(t)
"""
EINSUMS = """
m.einsum("ij,jk->ik", a, b); m.einsum("ij,jk->ki", a, b); m.einsum("ij,jk", a, b)
m.einsum("ii", sq); m.einsum("ii->i", sq); m.einsum("ij->ji", a); m.einsum("ij->", a)
m.einsum("ij->j", a); m.einsum("ji", a); m.einsum("i,j->ij", v, u); m.einsum("i,i->i", v, v)
m.einsum("i,i", v, v); m.einsum("...i->...", t); m.einsum("bij,bjk->bik", t, q)
m.einsum("bij,bjk->kib", t, q); m.einsum("...ij,...jk->...ik", r, q); m.einsum("i...,i...", a, a)
m.einsum("bij,ojk->bik", t, o); m.einsum("ii,ij->ij", sq, b); m.einsum("ij,kl->", a, b)
m.einsum(",ij->ij", s, a); m.einsum("ijk,jk->i", t, a); m.einsum("ij,j", i, v)
m.einsum("ij,jk,kl->il", a, b, b.T); m.einsum("ij,jk,kl,l->i", a, b, b.T, v, optimize="greedy")
m.einsum("ij,jk,kl->il", a, b, b.T, optimize=False)
m.einsum("ij,jk,kl->li", a, b, b.T, optimize="optimal")
m.einsum("ij,jk,kl->il", a, b, b.T, optimize=[(1, 2), (0, 1)]); m.einsum("a,b,c->abc", v, u, v)
m.einsum("ij,ij,ij->i", a, a, a); m.einsum(a, [0, 1], b, [1, 2])
m.einsum(a, [0, 1], b, [1, 2], [2, 0]); m.einsum(t, [..., 1], v, [1], [...])
m.einsum("ij,jk->ik", h, h.T, preferred_element_type=np.float32); m.einsum("ij,jk->ik", h, b)
m.einsum("ij,jk->ik", i, i); m.einsum("ij,ij->ij", z, a); m.einsum("i j , j k -> i k", a, b)
m.einsum("ij,jk->ik", weak, a); m.einsum("ij->i", bf)
m.einsum("ij,kj->ik", a, sq, precision="high"); m.einsum("bij->b", t); m.einsum("bij,bij->", t, t)
m.einsum("ij,jj->i", a, sq)
"""


@pytest.mark.parametrize("expression", everyday(cases(PRODUCTS), 13))
def test_products_are_those_of_jax(expression):
    compare(expression)


@pytest.mark.parametrize("expression", everyday(cases(EINSUMS), 5))
def test_einsum_is_that_of_jax(expression):
    compare(expression)


@pytest.mark.parametrize(
    "subscripts, shapes",
    [("ij,ij->j", [(1, 3), (2, 3)]), ("ij,ij->", [(2, 1), (2, 3)]), ("iiii->i", [(2,) * 4]),
     ("ijij->", [(2, 3, 2, 3)]), ("ea,fb,abcd,g->efdg", [(2, 2), (2, 2), (2,) * 4, (3,)]),
     ("ij,ij->ij", [(1, 3), (2, 1)]), ("i,ij,jk,k->", [(2,), (2, 3), (3, 4), (4,)])],
)
def test_einsum_is_that_of_numpy(subscripts, shapes):
    xs = [normal(*s) for s in shapes]
    for optimize in (True, False):
        came = np.asarray(swnp.einsum(subscripts, *xs, optimize=optimize))
        np.testing.assert_allclose(came, np.einsum(subscripts, *xs), rtol=1e-4, atol=1e-4)


def equations(fun, *shapes):
    types = [type_of(np.zeros(s, np.float32)) for s in shapes]
    return [e.op.name for e in stage(lambda *xs: [fun(*xs)], types)[0].equations]


@pytest.mark.parametrize(
    "subscripts, shapes, ops",
    [("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)], ["dot_general"]),
     ("bqhd,bkhd->bhkq", [(2, 3, 4, 5), (2, 6, 4, 5)], ["dot_general"]),
     ("bhqk,bkhd->bqhd", [(2, 4, 3, 6), (2, 6, 4, 5)], ["dot_general", "transpose"]),
     ("btd,df->btf", [(2, 3, 4), (4, 5)], ["dot_general"]),
     ("btd,d->btd", [(2, 3, 4), (4,)], ["broadcast_in_dim", "mul"])],
)
def test_einsum_stages_few_ops(subscripts, shapes, ops):
    assert equations(lambda *xs: swnp.einsum(subscripts, *xs), *shapes) == ops


@pytest.mark.parametrize(
    "shapes, ops",
    [([(2, 3), (3, 4)], ["dot_general"]), ([(5, 2, 3), (3, 4)], ["dot_general"]),
     ([(5, 2, 3), (5, 3, 4)], ["dot_general"]), ([(2, 3), (5, 3, 4)], ["dot_general", "transpose"]),
     ([(1, 2, 3), (5, 3, 4)], ["reshape", "dot_general", "transpose"])],
)
def test_matmul_broadcasts_nothing(shapes, ops):
    assert equations(swnp.matmul, *shapes) == ops


def test_a_plan_is_made_once():
    plan = subscripts.plan
    before = plan.cache_info()
    for _ in range(3):
        equations(lambda x, y: swnp.einsum("pq,qr->pr", x, y), (7, 5), (5, 3))
    after = plan.cache_info()
    assert after.misses - before.misses == 1


GRADIENTS = """
m.matmul(a, b); m.matmul(a, q); m.matmul(r, b); m.einsum("ij,jk,kl->il", a, b, b.T)
m.einsum("ij->j", a); m.einsum("ii->i", a[:, :2]); m.tensordot(a, a); m.kron(a, p)
m.cross(a, a[::-1]); m.trace(a); m.vdot(a, a); m.linalg.norm(a); m.linalg.norm(a, 1)
m.linalg.matrix_power(a[:, :2], 3); m.linalg.multi_dot([a, b, b.T]); m.outer(a, v); m.inner(a, sq)
m.vecdot(a, a); m.matvec(a, v)
"""


@pytest.mark.parametrize("expression", everyday(cases(GRADIENTS), 2))
def test_gradients_are_those_of_jax(expression):
    def loss(module, asarray):
        found = names(module, asarray)
        return lambda a: module.sum(eval(expression, found | {"a": a}) ** 2)

    came = sw.grad(loss(swnp, swnp.asarray))(swnp.asarray(VALUES["a"]))
    wanted = jax.grad(loss(jnp, jnp.asarray))(jnp.asarray(VALUES["a"]))
    np.testing.assert_allclose(np.asarray(came), wanted, rtol=2e-4, atol=2e-5)


MESSAGES = [
    ("m.matmul(a, a)", TypeError,
     "matmul: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the second, of "
     "shape (2, 3), are summed over and must be equal: 3 ≠ 2. The second operand fits if "
     "transposed (`.T`)."),
    ("m.matmul(b, a)", TypeError,
     "matmul: dimension 1 of the first operand, of shape (3, 4), and dimension 0 of the second, of "
     "shape (2, 3), are summed over and must be equal: 4 ≠ 2."),
    ("m.matmul(s, a)", ValueError,
     "matmul: operands must have at least one dimension; got shapes () and (2, 3). Multiply by "
     "scalars with *."),
    ("m.matmul(t, q[:4])", ValueError,
     "matmul: the batch dimensions of shapes (5, 2, 3) and (4, 3, 4) do not broadcast."),
    ("m.dot(a, a)", TypeError,
     "dot: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the second, of "
     "shape (2, 3), are summed over and must be equal: 3 ≠ 2. The second operand fits if "
     "transposed (`.T`)."),
    ("m.dot(m.ones((3, 4)), m.ones(3))", TypeError,
     "dot: dimension 1 of the first operand, of shape (3, 4), and dimension 0 of the second, of "
     "shape (3,), are summed over and must be equal: 4 ≠ 3. The first operand fits if transposed "
     "(`.T`)."),
    ("m.inner(a, b)", TypeError,
     "inner: dimension 1 of the first operand, of shape (2, 3), and dimension 1 of the second, of "
     "shape (3, 4), are summed over and must be equal: 3 ≠ 4. The second operand fits if "
     "transposed (`.T`)."),
    ("m.vdot(a, b)", TypeError,
     "vdot: the operands, of shapes (2, 3) and (3, 4), must have the same number of elements: 6 ≠ "
     "12."),
    ("m.matvec(a, v[:1])", ShapeError,
     "matvec: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the second, of "
     "shape (1,), are summed over and must be equal: 3 ≠ 1. Sizes of 1 broadcast only in the other "
     "dimensions."),
    ("m.matvec(a[:, :1], v)", ShapeError,
     "matvec: dimension 1 of the first operand, of shape (2, 1), and dimension 0 of the second, of "
     "shape (3,), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in the other "
     "dimensions."),
    ("m.vecmat(v[:1], b)", ShapeError,
     "vecmat: dimension 0 of the first operand, of shape (1,), and dimension 0 of the second, of "
     "shape (3, 4), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in the "
     "other dimensions."),
    ("m.vecdot(v[:1], a)", ShapeError,
     "vecdot: dimension 0 of the first operand, of shape (1,), and dimension 1 of the second, of "
     "shape (2, 3), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in the "
     "other dimensions."),
    ("m.matvec(v, v)", TypeError,
     "matvec: operand 0 has 1 dimensions, but its term '...nk' has 2, in '...nk,...k->...n'."),
    ("m.tensordot(a, b, 2)", TypeError,
     "tensordot: the sizes of shape (2, 3) at (0, 1) and of shape (3, 4) at (0, 1) must be "
     "equal: (2, 3) ≠ (3, 4)."),
    ("m.einsum('ij,jk->il', a, b)", ValueError,
     "einsum: the result has 'l', which no operand has, in 'ij,jk->il'."),
    ("m.einsum('ij,jk', a, a)", ValueError,
     "einsum: 'j' is 3 in operand 0, of shape (2, 3), but 2 in operand 1, of shape (2, 3); they "
     "must be equal, in 'ij,jk'."),
    ("m.einsum('...j,...j', m.ones((2, 3)), m.ones((4, 3)))", ValueError,
     "einsum: dimension -1 of '...' is 2 in operand 0, of shape (2, 3), but 4 in operand 1, of "
     "shape (4, 3); they must be equal, in '...j,...j'."),
    ("m.einsum('ijk->i', a)", ValueError,
     "einsum: operand 0 has 2 dimensions, but its term 'ijk' has 3, in 'ijk->i'."),
    ("m.einsum('ij', a, b)", ValueError,
     "einsum: the subscripts have 1 term for 2 operands, in 'ij'."),
    ("m.einsum('i2->i', a)", ValueError, "einsum: unexpected '2', in 'i2->i'."),
    ("m.einsum('...j->j', a)", ValueError,
     "einsum: the result lacks the '...' of the operands, in '...j->j'."),
    ("m.einsum('ij->ii', a)", ValueError, "einsum: the result repeats a label, in 'ij->ii'."),
    ("m.cross(b, b)", ValueError,
     "cross: the vectors must have 2 or 3 components; got 4 and 4."),
    ("m.trace(v)", ValueError, "trace needs at least 2 dimensions; got f32[3]."),
    ("m.linalg.norm(a, 4)", ValueError, "norm: invalid order 4 for a matrix."),
    ("m.linalg.matrix_power(a, 2)", TypeError,
     "matrix_power takes square matrices; got f32[2,3]."),
    ("m.linalg.multi_dot([a, a])", ValueError,
     "multi_dot: shapes (2, 3), (2, 3) are not aligned."),
]


@pytest.mark.parametrize("expression, error, message", MESSAGES)
def test_messages(expression, error, message):
    with pytest.raises(error) as caught:
        eval(expression, names(swnp, swnp.asarray))
    assert str(caught.value) == message
