"""JAX's primitives for sparse arrays: the same calls return the same values."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import sparse as theirs
from jax.experimental.sparse import linalg as their_linalg

import shardwise as sw
from shardwise.experimental import sparse
from shardwise.experimental.sparse import linalg
from tests.helpers.everyday import everyday

M = np.array([[1, 0, 2, 0], [0, 0, 0, 3], [4, 5, 0, 0]], np.float32)
D = np.arange(12, dtype=np.float32).reshape(4, 3) - 4
DATA, ROW, COL = M[M != 0], *(i.astype(np.int32) for i in np.nonzero(M))
AT = np.stack([ROW, COL], 1)
PTR = np.array([0, 2, 3, 5], np.int32)
S, N = np.eye(3, dtype=np.float32) * 2, (((1,), (0,)), ((), ()))
TWICE, TWICE_AT = np.tile(DATA, 2), np.tile(AT, (2, 1))
KIND = {"nse": 5, "n_batch": 0, "n_dense": 0, "index_dtype": np.dtype(np.int32)}
PLAIN = {"nse": 5, "index_dtype": np.dtype(np.int32)}


class SparseInfo(NamedTuple):
    shape: tuple[int, ...] = M.shape
    indices_sorted: bool = False
    unique_indices: bool = False


class COOInfo(NamedTuple):
    shape: tuple[int, ...] = M.shape
    rows_sorted: bool = False
    cols_sorted: bool = False


I, C, T = SparseInfo(), COOInfo(), SparseInfo(M.T.shape)  # noqa: E741
DOT = {"dimension_numbers": N, "preferred_element_type": None}
BY = {"spinfo": C, "transpose": False}
ROWS = {"shape": M.shape, "transpose": True}

# name: operands, parameters, whether the first may be differentiated by
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], bool]] = {
    "bcoo_todense_p": ((DATA, AT), {"spinfo": I}, True),
    "bcoo_fromdense_p": ((M,), KIND, True),
    "bcoo_extract_p": ((AT, M), {"assume_unique": True}, False),
    "bcoo_transpose_p": ((DATA, AT), {"permutation": (1, 0), "spinfo": I}, True),
    "bcoo_dot_general_p": ((DATA, AT, D), {**DOT, "lhs_spinfo": I}, True),
    "bcoo_dot_general_sampled_p": ((M, D, AT % 3), {"dimension_numbers": N}, True),
    "bcoo_spdot_general_p": (
        (DATA, AT, DATA, AT[:, ::-1].copy()),
        {**DOT, "lhs_spinfo": I, "rhs_spinfo": T},
        True,
    ),
    "bcoo_sort_indices_p": ((DATA[::-1].copy(), AT[::-1].copy()), {"spinfo": I}, True),
    "bcoo_sum_duplicates_p": ((TWICE, TWICE_AT), {"spinfo": I, "nse": 5}, True),
    "bcsr_todense_p": ((DATA, COL, PTR), {"spinfo": I}, True),
    "bcsr_fromdense_p": ((M,), KIND, True),
    "bcsr_extract_p": ((COL, PTR, M), {}, False),
    "bcsr_dot_general_p": ((DATA, COL, PTR, D), {**DOT, "lhs_spinfo": I}, True),
    "coo_todense_p": ((DATA, ROW, COL), {"spinfo": C}, True),
    "coo_fromdense_p": ((M,), PLAIN, True),
    "coo_matvec_p": ((DATA, ROW, COL, D[:, 0]), BY, True),
    "coo_matmat_p": ((DATA, ROW, COL, D), BY, True),
    "csr_todense_p": ((DATA, COL, PTR), {"shape": M.shape}, True),
    "csr_fromdense_p": ((M,), PLAIN, True),
    "csr_matvec_p": ((DATA, COL, PTR, D[0]), ROWS, True),
    "csr_matmat_p": ((DATA, COL, PTR, D.T[:, :2].copy()), ROWS, True),
    "spsolve_p": (
        (
            np.full(3, 2, np.float32),
            np.arange(3, dtype=np.int32),
            np.arange(4, dtype=np.int32),
            D[0],
        ),
        {"tol": 1e-6, "reorder": 1},
        True,
    ),
}


def bound(name: str) -> tuple[Any, Any]:
    params = CASES[name][1]
    homes = (linalg, their_linalg) if name == "spsolve_p" else (sparse, theirs)
    return tuple([partial(attrgetter(name)(home).bind, **params) for home in homes])  # type: ignore


@pytest.mark.parametrize("name", everyday(CASES, 5))
def test_values_programs_and_derivatives(name: str):
    args, _, smooth = CASES[name]
    ours, reference = bound(name)
    wanted = jax.tree.leaves(reference(*args))
    for run in (ours, sw.jit(ours)):
        for x, y in zip(sw.tree.leaves(run(*args)), wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
    (eqn,) = sw.make_jaxpr(ours)(*args).eqns
    assert str(eqn.primitive) == name[:-2]
    if not smooth:
        return

    @sw.jit
    def total(x: Any) -> Any:
        return (sw.tree.leaves(ours(x, *args[1:]))[0] ** 2).sum()

    step = np.zeros_like(args[0])
    place = np.unravel_index(np.argmax(np.abs(args[0])), step.shape)
    step[place] = 0.05
    slope = (total(args[0] + step) - total(args[0] - step)) / 0.1
    np.testing.assert_allclose(sw.jit(sw.grad(total))(args[0])[place], slope, rtol=1e-2)


def test_maps_and_trees():
    many = np.stack([DATA, 2 * DATA])
    dense = sw.vmap(bound("bcoo_todense_p")[0], in_axes=(0, None))(many, AT)
    np.testing.assert_array_equal(dense, np.stack([M, 2 * M]))
    parts, tree = sw.tree.flatten(sparse.BCOO((DATA, AT), shape=M.shape))
    np.testing.assert_array_equal(sparse.todense_p.bind(*parts, tree=tree), M)
    back = sw.linear_transpose(lambda d: bound("coo_todense_p")[0](d, ROW, COL), DATA)
    np.testing.assert_array_equal(
        back(np.arange(12, dtype=np.float32).reshape(3, 4))[0], [0, 2, 7, 8, 9]
    )
