"""Rotations in three dimensions, under SciPy's names: `Rotation`, `Slerp`.

    turn = Rotation.from_euler("z", 90, degrees=True)
    turn.apply([1, 0, 0])

A rotation is a unit quaternion (x, y, z, w); an array of rotations has the quaternions along its
last dimension. Both classes are named tuples, and thus pytrees: they work with all transforms.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.linalg.decompositions import eigh
from shardwise._src.numpy.creation import array, asarray, ones
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ordering.sorting import searchsorted
from shardwise._src.numpy.picking import take_along_axis
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.rearrange import roll
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.numpy.statistics.reductions import argmax
from shardwise._src.numpy.statistics.scans import diff
from shardwise._src.numpy.unary import absolute, cos, deg2rad, rad2deg, sin, sqrt
from shardwise._src.random.continuous import normal
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.values.binary import arctan2, hypot


def _floats(x: Any) -> Any:
    return inexact(array(x))[0]


def _length(v: Any) -> Any:
    """float[…, 1]; its derivative at zero is zero."""
    square = (v * v).sum(-1, keepdims=True)
    return where(square > 0, sqrt(where(square > 0, square, 1)), 0)


def _normalized(q: Any) -> Any:
    return q / _length(q)


def _product(p: Any, q: Any) -> Any:
    a, b, c, d = [p[..., i] for i in range(4)]
    x, y, z, w = [q[..., i] for i in range(4)]
    return stack(
        [
            d * x + w * a + b * z - c * y,
            d * y + w * b + c * x - a * z,
            d * z + w * c + a * y - b * x,
            d * w - a * x - b * y - c * z,
        ],
        -1,
    )


def _axes(seq: str, counts: Sequence[int]) -> tuple[list[int], bool]:
    """The indices of the axes, and whether they rotate with the body."""
    same = any(a == b for a, b in itertools.pairwise(seq))
    if len(seq) not in counts or same or not re.fullmatch("[xyz]+|[XYZ]+", seq):
        raise ValueError(
            f"Rotation: axes must be {' or '.join(map(str, counts))} of 'xyz' (extrinsic) or of "
            f"'XYZ' (intrinsic), with adjacent ones different; got {seq!r}."
        )
    return ["xyz".index(a) for a in seq.lower()], seq.isupper()


class Rotation(NamedTuple):
    """A rotation, or an array of them. quat: float[…, 4], as (x, y, z, w)."""

    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Concatenates arrays of rotations."""
        return cls(concatenate([r.quat.reshape(-1, 4) for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """From successive rotations about one to three axes.

        Args:
          seq: "xyz" and similar for fixed axes, "XYZ" for body axes.
          angles: float[…, len(seq)]; for one axis also a scalar, or a vector for several rotations.
        """
        axes, turning = _axes(seq, (1, 2, 3))
        given = _floats(angles)
        if len(axes) == 1 and given.ndim < 2:
            given = given[..., None]
        if given.shape[-1:] != (len(axes),):
            raise ValueError(
                f"Rotation takes {len(axes)} angles along the last dimension; got shape "
                f"{given.shape}."
            )
        half: Any = (deg2rad(given) if degrees else given) / 2
        found = []
        for n, axis in enumerate(axes):
            part: list[Any] = [half[..., n] * 0] * 4
            part[axis], part[3] = sin(half[..., n]), cos(half[..., n])
            found.append(stack(part, -1))
        return cls(functools.reduce(_product, found if turning else found[::-1]))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """From orthogonal matrices float[…, 3, 3] of determinant one."""
        m = _floats(matrix)
        diagonal = [m[..., i, i] for i in range(3)]
        trace = functools.reduce(operator.add, diagonal)
        ways = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            q: list[Any] = [None] * 4
            q[i] = 1 - trace + 2 * diagonal[i]
            q[j] = m[..., j, i] + m[..., i, j]
            q[k] = m[..., k, i] + m[..., i, k]
            q[3] = m[..., k, j] - m[..., j, k]
            ways.append(stack(q, -1))
        ways.append(
            stack(
                [
                    m[..., 2, 1] - m[..., 1, 2],
                    m[..., 0, 2] - m[..., 2, 0],
                    m[..., 1, 0] - m[..., 0, 1],
                    1 + trace,
                ],
                -1,
            )
        )
        best = argmax(stack([*diagonal, trace], -1), -1)[..., None, None]
        return cls(_normalized(take_along_axis(stack(ways, -2), best, -2)[..., 0, :]))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """From modified Rodrigues parameters float[…, 3]: axis · tan(angle / 4)."""
        v = _floats(mrp)
        square = (v * v).sum(-1, keepdims=True)
        return cls(concatenate([2 * v, 1 - square], -1) / (1 + square))

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """From quaternions float[…, 4] of any nonzero length."""
        return cls(_normalized(_floats(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """From vectors float[…, 3]: axis · angle."""
        v = _floats(rotvec)
        v = deg2rad(v) if degrees else v
        angle = _length(v)
        square = angle * angle
        little = angle <= 1e-3
        near = 0.5 - square / 48 + square * square / 3840
        scale = where(little, near, sin(angle / 2) / where(little, 1, angle))
        return cls(concatenate([scale * v, cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """The identity rotation, or `num` of them."""
        one = array([0, 0, 0, 1], dtype=dtype)
        return cls(one if num is None else broadcast_to(one, (num, 4)))

    @classmethod
    def random(cls, random_key: Array, num: int | None = None) -> Rotation:
        """A uniformly distributed rotation, or `num` of them. (JAX does not have this.)"""
        return cls(_normalized(normal(random_key, (4,) if num is None else (num, 4))))

    def __getitem__(self, indexer: Any) -> Rotation:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.single:
            raise TypeError("Rotation: a single rotation cannot be indexed.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Rotation: a single rotation has no length.")
        return self.quat.shape[0]

    def __mul__(self, other: Rotation) -> Rotation:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Composition: first the other rotation, then this one."""
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Rotates vectors float[…, 3]; their shape and that of the rotations broadcast."""
        m = self.as_matrix()
        m = m.swapaxes(-1, -2) if inverse else m
        return matmul(m, _floats(vectors)[..., None], precision="highest")[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles float[…, 3] about three axes, the first and third in [-π, π]; see `from_euler`.

        In gimbal lock, when two axes coincide, the third angle is zero. Algorithm: E. Bernardes,
        S. Viollet, "Quaternion to Euler angles conversion", 2022.
        """
        axes, turning = _axes(seq, (3,))
        i, j, k = axes[::-1] if turning else axes
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = [self.quat[..., n] for n in range(4)]
        a, b, c, d = q[3], q[i], q[j], q[k] * sign
        if not symmetric:
            a, b, c, d = a - c, b + d, c + a, d - b
        middle = 2 * arctan2(hypot(c, d), hypot(a, b))
        total, difference = arctan2(b, a), arctan2(d, c)
        none, half_turn = absolute(middle) <= 1e-7, absolute(middle - np.pi) <= 1e-7
        lone = where(none, 2 * total, 2 * difference * (1 if turning else -1))
        locked = none | half_turn
        low, high = total - difference, total + difference
        high = high if symmetric else high * sign
        middle = middle if symmetric else middle - np.pi / 2
        first, third = (high, low) if turning else (low, high)
        found = stack([where(locked, lone, first), middle, where(locked, 0, third)], -1)
        if turning and not symmetric:
            found = found * where(
                locked[..., None], asarray([sign, 1, 1], found.dtype), asarray(1, found.dtype)
            )
        found = found - 2 * np.pi * (where(found > np.pi, 1, 0) - where(found < -np.pi, 1, 0))
        return rad2deg(found) if degrees else found

    def as_matrix(self) -> Array:
        """float[…, 3, 3]"""
        x, y, z, w = [self.quat[..., i] for i in range(4)]
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), y * y - x * x - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), z * z - x * x - y * y + w * w],
        ]
        return stack([stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """float[…, 3]; see `from_mrp`."""
        q = where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return q[..., :3] / (1 + q[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Array:
        """float[…, 3], of angles up to π; see `from_rotvec`."""
        q = where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2 * arctan2(_length(q[..., :3]), q[..., 3:])
        square = angle * angle
        little = angle <= 1e-3
        near = 2 + square / 12 + 7 * square * square / 2880
        found = where(little, near, angle / sin(where(little, 1, angle) / 2)) * q[..., :3]
        return rad2deg(found) if degrees else found

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """float[…, 4]. canonical: of q and -q, the one whose first nonzero component in the order
        (w, x, y, z) is positive. scalar_first: as (w, x, y, z)."""
        q = self.quat
        if canonical:
            turned, open_ = q[..., 3] < 0, q[..., 3] == 0
            for i in range(3):
                turned, open_ = turned | (open_ & (q[..., i] < 0)), open_ & (q[..., i] == 0)
            q = where(turned[..., None], -q, q)
        return roll(q, 1, -1) if scalar_first else q

    def inv(self) -> Rotation:
        """The inverse rotation."""
        return Rotation(self.quat * asarray([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Array:
        """The rotation angles, in [0, π]."""
        return 2 * arctan2(_length(self.quat[..., :3])[..., 0], absolute(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The mean rotation: it minimizes the sum of squared chordal distances."""
        w = ones(len(self), self.quat.dtype) if weights is None else _floats(weights)
        if w.shape != (len(self),):
            raise ValueError(
                f"Rotation: weights must be a vector of {len(self)} elements; got shape {w.shape}."
            )
        found = matmul(w * self.quat.T, self.quat, precision="highest")
        return Rotation(eigh(found)[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether it is a single rotation, not an array."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Interpolates rotations given at times, at constant speed; made by `Slerp.init`."""

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """times: strictly ascending, one per rotation; two or more."""
        if not isinstance(rotations, Rotation):
            raise TypeError(f"Slerp takes a Rotation; got {type(rotations).__name__}.")
        quat = rotations.quat
        at: Any = array(times, quat.dtype)
        if quat.ndim != 2 or quat.shape[0] < 2 or at.shape != quat.shape[:1]:
            raise ValueError(
                "Slerp takes two or more rotations, and a vector of as many times; got shapes "
                f"{quat.shape[:-1]} and {at.shape}."
            )
        first = Rotation(quat[:-1])
        return cls(at, diff(at), first, (first.inv() * Rotation(quat[1:])).as_rotvec())

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at the given times: a scalar or a vector."""
        t: Any = array(times, self.times.dtype)
        if t.ndim > 1:
            raise ValueError(f"Slerp: times must be a scalar or a vector; got shape {t.shape}.")
        i = (searchsorted(self.times, t) - 1).clip(0, self.timedelta.shape[0] - 1)
        part = ((t - self.times[i]) / self.timedelta[i])[..., None]
        return self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * part)
