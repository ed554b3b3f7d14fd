"""Products: einsum against NumPy; plans, errors, tracing cost. `calls` has others against jax."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.products import einsum as subscripts
from shardwise._src.transforms.stage import stage
from tests.helpers.errors import messages
from tests.helpers.oracle import names
from tests.numpy.calls import FACTORS

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(
    "subscripts, shapes",
    [
        ("ij,ij->j", [(1, 3), (2, 3)]),
        ("ij,ij->", [(2, 1), (2, 3)]),
        ("iiii->i", [(2,) * 4]),
        ("ijij->", [(2, 3, 2, 3)]),
        ("ea,fb,abcd,g->efdg", [(2, 2), (2, 2), (2,) * 4, (3,)]),
        ("ij,ij->ij", [(1, 3), (2, 1)]),
        ("i,ij,jk,k->", [(2,), (2, 3), (3, 4), (4,)]),
    ],
)
def test_einsum_is_that_of_numpy(subscripts, shapes):
    xs = [RNG.normal(size=s).astype(np.float32) for s in shapes]
    for optimize in (True, False):
        came = np.asarray(swnp.einsum(subscripts, *xs, optimize=optimize))
        np.testing.assert_allclose(came, np.einsum(subscripts, *xs), rtol=1e-4, atol=1e-4)


def equations(fun, *shapes):
    types = [type_of(np.zeros(s, np.float32)) for s in shapes]
    return [e.op.name for e in stage(lambda *xs: [fun(*xs)], types)[0].eqns]


@pytest.mark.parametrize(
    "subscripts, shapes, ops",
    [
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)], ["dot_general"]),
        ("bqhd,bkhd->bhkq", [(2, 3, 4, 5), (2, 6, 4, 5)], ["dot_general"]),
        ("bhqk,bkhd->bqhd", [(2, 4, 3, 6), (2, 6, 4, 5)], ["dot_general", "transpose"]),
        ("btd,df->btf", [(2, 3, 4), (4, 5)], ["dot_general"]),
        ("btd,d->btd", [(2, 3, 4), (4,)], ["broadcast_in_dim", "mul"]),
    ],
)
def test_einsum_stages_few_ops(subscripts, shapes, ops):
    assert equations(lambda *xs: swnp.einsum(subscripts, *xs), *shapes) == ops


@pytest.mark.parametrize(
    "shapes, ops",
    [
        ([(2, 3), (3, 4)], ["dot_general"]),
        ([(5, 2, 3), (3, 4)], ["dot_general"]),
        ([(5, 2, 3), (5, 3, 4)], ["dot_general"]),
        ([(2, 3), (5, 3, 4)], ["dot_general", "transpose"]),
        ([(1, 2, 3), (5, 3, 4)], ["reshape", "dot_general", "transpose"]),
    ],
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


test_messages = messages(
    """
m.matmul(a, a)
    ShapeError: matmul: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the
    second, of shape (2, 3), are summed over and must be equal: 3 ≠ 2. The second operand fits if
    transposed (`.T`).
m.matmul(b, a)
    ShapeError: matmul: dimension 1 of the first operand, of shape (3, 4), and dimension 0 of the
    second, of shape (2, 3), are summed over and must be equal: 4 ≠ 2.
m.matmul(s, a)
    ValueError: matmul: operands must have at least one dimension; got shapes () and (2, 3).
    Multiply by scalars with *.
m.matmul(t, q[:4])
    ValueError: matmul: the batch dimensions of shapes (5, 2, 3) and (4, 3, 4) do not broadcast.
m.dot(a, a)
    ShapeError: dot: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the
    second, of shape (2, 3), are summed over and must be equal: 3 ≠ 2. The second operand fits if
    transposed (`.T`).
m.dot(m.ones((3, 4)), m.ones(3))
    ShapeError: dot: dimension 1 of the first operand, of shape (3, 4), and dimension 0 of the
    second, of shape (3,), are summed over and must be equal: 4 ≠ 3. The first operand fits if
    transposed (`.T`).
m.inner(a, b)
    ShapeError: inner: dimension 1 of the first operand, of shape (2, 3), and dimension 1 of the
    second, of shape (3, 4), are summed over and must be equal: 3 ≠ 4. The second operand fits if
    transposed (`.T`).
m.vdot(a, b)
    TypeError: vdot: the operands, of shapes (2, 3) and (3, 4), must have the same number of
    elements: 6 ≠ 12.
m.matvec(a, v[:1])
    ShapeError: matvec: dimension 1 of the first operand, of shape (2, 3), and dimension 0 of the
    second, of shape (1,), are summed over and must be equal: 3 ≠ 1. Sizes of 1 broadcast only in
    the other dimensions.
m.matvec(a[:, :1], v)
    ShapeError: matvec: dimension 1 of the first operand, of shape (2, 1), and dimension 0 of the
    second, of shape (3,), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in
    the other dimensions.
m.vecmat(v[:1], b)
    ShapeError: vecmat: dimension 0 of the first operand, of shape (1,), and dimension 0 of the
    second, of shape (3, 4), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in
    the other dimensions.
m.vecdot(v[:1], a)
    ShapeError: vecdot: dimension 0 of the first operand, of shape (1,), and dimension 1 of the
    second, of shape (2, 3), are summed over and must be equal: 1 ≠ 3. Sizes of 1 broadcast only in
    the other dimensions.
m.matvec(v, v)
    TypeError: matvec: operand 0 has 1 dimensions, but its term '...nk' has 2, in
    '...nk,...k->...n'.
m.tensordot(a, b, 2)
    TypeError: tensordot: the sizes of shape (2, 3) at (0, 1) and of shape (3, 4) at (0, 1) must be
    equal: (2, 3) ≠ (3, 4).
m.einsum('ij,jk->il', a, b)
    ValueError: einsum: the result has 'l', which no operand has, in 'ij,jk->il'.
m.einsum('ij,jk', a, a)
    ValueError: einsum: 'j' is 3 in operand 0, of shape (2, 3), but 2 in operand 1, of shape (2,
    3); they must be equal, in 'ij,jk'.
m.einsum('...j,...j', m.ones((2, 3)), m.ones((4, 3)))
    ValueError: einsum: dimension -1 of '...' is 2 in operand 0, of shape (2, 3), but 4 in operand
    1, of shape (4, 3); they must be equal, in '...j,...j'.
m.einsum('ijk->i', a)
    ValueError: einsum: operand 0 has 2 dimensions, but its term 'ijk' has 3, in 'ijk->i'.
m.einsum('ij', a, b)
    ValueError: einsum: the subscripts have 1 term for 2 operands, in 'ij'.
m.einsum('i2->i', a)
    ValueError: einsum: unexpected '2', in 'i2->i'.
m.einsum('...j->j', a)
    ValueError: einsum: the result lacks the '...' of the operands, in '...j->j'.
m.einsum('ij->ii', a)
    ValueError: einsum: the result repeats a label, in 'ij->ii'.
m.cross(b, b)
    ValueError: cross: the vectors must have 2 or 3 components; got 4 and 4.
m.trace(v)
    ValueError: trace needs at least 2 dimensions; got f32[3].
m.linalg.norm(a, 4)
    ValueError: norm: invalid order 4 for a matrix.
m.linalg.matrix_power(a, 2)
    TypeError: matrix_power takes square matrices; got f32[2,3].
m.linalg.multi_dot([a, a])
    ValueError: multi_dot: shapes (2, 3), (2, 3) are not aligned.
""",
    names(sw, FACTORS),
)
