"""`scipy.spatial.transform`: rotations against SciPy's, transforms, shardings, errors."""

from __future__ import annotations

import itertools
import warnings

import jax.scipy.spatial.transform as theirs
import numpy as np
import pytest
from scipy.spatial import transform

import shardwise as sw
from shardwise.scipy.spatial.transform import Rotation, Slerp
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(8)
Q = RNG.standard_normal((7, 4))
ORDERS = ["".join(p) for p in itertools.product("xyz", repeat=3) if p[0] != p[1] != p[2]]


def test_forms_and_products():
    with sw.enable_x64(True):
        (r, s), (other, others) = [
            (Rotation.from_quat(q), transform.Rotation.from_quat(q)) for q in (Q, Q[::-1] + 0.1)
        ]
        m = s.as_matrix()
        for ours, wanted in (
            (r.as_matrix(), m),
            (r.as_rotvec(), s.as_rotvec()),
            (r.as_mrp(), s.as_mrp()),
            (r.magnitude(), s.magnitude()),
            (r.inv().quat, s.inv().as_quat()),
            (r.as_rotvec(True), s.as_rotvec(degrees=True)),
            (r.as_quat(True), s.as_quat(canonical=True)),
            (r.as_quat(scalar_first=True), np.roll(s.as_quat(), 1, -1)),
            ((r * other).as_matrix(), (s * others).as_matrix()),
            (r.apply([1, 2, 3]), s.apply([1, 2, 3])),
            (r.apply(Q[:, :3], True), s.apply(Q[:, :3], inverse=True)),
            (Rotation.from_matrix(m).as_matrix(), m),
            (Rotation.from_mrp(s.as_mrp()).as_matrix(), m),
            (Rotation.from_rotvec(s.as_rotvec(True), True).as_matrix(), m),
            (r.mean().as_matrix(), s.mean().as_matrix()),
            (r.mean(np.arange(7.0)).as_matrix(), s.mean(np.arange(7.0)).as_matrix()),
            (Rotation.concatenate([r, other[0]]).as_matrix(), [*m, others[0].as_matrix()]),
            (Rotation.from_euler("z", 90, True).quat, [0, 0, 0.5**0.5, 0.5**0.5]),
            (r[2:4].quat, s[2:4].as_quat()),
            (Rotation.identity(2).as_rotvec(), np.zeros((2, 3))),
        ):
            close(ours, np.asarray(wanted))
        assert len(r) == 7 and r[0].single and not r.single


@pytest.mark.parametrize("order", everyday([*ORDERS, *map(str.upper, ORDERS)], 1 / 12))
def test_angles_about_axes(order):
    with sw.enable_x64(True):
        angles = RNG.uniform(-3, 3, (4, 3))
        s = transform.Rotation.from_euler(order, angles)
        close(Rotation.from_euler(order, angles).as_matrix(), s.as_matrix())
        close(Rotation(s.as_quat()).as_euler(order, True), s.as_euler(order, True))
        for middle in (0, np.pi, np.pi / 2, -np.pi / 2):  # where axes may coincide
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                s = transform.Rotation.from_euler(order, [0.3, middle, 0.5])
                wanted = s.as_euler(order)
            close(Rotation(s.as_quat()).as_euler(order), wanted, 1e-6)


@pytest.mark.sweep
def test_between_rotations():
    times = np.array([0, 1, 2.5, 3, 4, 6, 7])
    with sw.enable_x64(True):
        r, s = Rotation.from_quat(Q), transform.Rotation.from_quat(Q)
        for t in (np.array([0, 0.5, 1, 5.9, 7]), 2.7):
            wanted = transform.Slerp(times, s)(t).as_matrix()
            close(Slerp.init(times, r)(t).as_matrix(), wanted)


def test_random_rotations():
    r = Rotation.random(sw.random.key(0), 2000)
    close(r.as_matrix().mean(0), np.zeros((3, 3), np.float32), 0.06)
    assert Rotation.random(sw.random.key(1)).single


@pytest.mark.parametrize("case", everyday(range(4), 1))
def test_places_and_derivatives(case):
    fun, x = [
        (lambda q: Rotation.from_quat(q).as_rotvec(), Q),
        (lambda v: Rotation.from_rotvec(v).as_matrix(), Q[:, :3]),
        (lambda v: Rotation.from_euler("xyZ".lower(), v).as_mrp(), Q[:, :3]),
        (lambda q: Slerp.init(np.arange(7.0), Rotation.from_quat(q))(np.float64(2.3)).quat, Q),
    ][case]
    everywhere(fun, x)


def test_derivatives_where_nothing_turns():
    found = sw.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(np.zeros(3, np.float32))
    np.testing.assert_allclose(found, np.eye(3), atol=1e-6)


ONE = Rotation(np.float32([0, 0, 0, 1]))
test_messages = messages(
    """
Rotation.from_euler("xx", Q[0, :2])
    ValueError: Rotation: axes must be 1 or 2 or 3 of 'xyz' (extrinsic) or of 'XYZ' (intrinsic),
    with adjacent ones different; got 'xx'.
ONE.as_euler("xy")
    ValueError: Rotation: axes must be 3 of 'xyz' (extrinsic) or of 'XYZ' (intrinsic), with
    adjacent ones different; got 'xy'.
Rotation.from_euler("xy", Q)
    ValueError: Rotation takes 2 angles along the last dimension; got shape (7, 4).
ONE[0]
    TypeError: Rotation: a single rotation cannot be indexed.
len(ONE)
    TypeError: Rotation: a single rotation has no length.
Rotation.from_quat(Q).mean(Q)
    ValueError: Rotation: weights must be a vector of 7 elements; got shape (7, 4).
Slerp.init(Q[:2, 0], Rotation.from_quat(Q))
    ValueError: Slerp takes two or more rotations, and a vector of as many times; got shapes (7,)
    and (2,).
Slerp.init(Q[:, 0], Q)
    TypeError: Slerp takes a Rotation; got ndarray.
Slerp.init(Q[:, 0], Rotation.from_quat(Q))(Q)
    ValueError: Slerp: times must be a scalar or a vector; got shape (7, 4).
""",
    globals(),
)


def test_names_and_signatures_are_those_of_jax():
    for ours, known in ((Rotation, theirs.Rotation), (Slerp, theirs.Slerp)):
        assert ours._fields == known._fields
        for name in {*vars(known)} - {"_make", "_replace", "_asdict", "__new__"}:
            if callable(getattr(known, name)) and (name[0] != "_" or name == "__mul__"):
                found = signature(getattr(ours, name))
                assert found == signature(getattr(known, name)), name
