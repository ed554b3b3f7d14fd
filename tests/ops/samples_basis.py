"""Samples of broadcast, transpose, reshape, casts and constraints."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from shardwise.testing import Sample, simulated_mesh

X = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
CUBE = np.random.default_rng(2).standard_normal((2, 4, 6)).astype(np.float32)
INTS = np.arange(24, dtype=np.int32).reshape(4, 6) - 7
COMPLEX = (X + 1j * X[::-1]).astype(np.complex64)
BOOLS = X > 0


def _reshape(x: np.ndarray, *shape: int, placed: bool = False) -> Sample:
    return Sample((x,), {"shape": shape}, lambda x: x.reshape(shape), placed=placed)


def _cast(x: np.ndarray, dtype: object, placed: bool = False) -> Sample:
    dtype = np.dtype(dtype)
    return Sample((x,), {"dtype": dtype}, lambda x: x.astype(dtype), placed=placed)


SAMPLES = {
    "broadcast_in_dim": [
        Sample(
            (X,),
            {"shape": (4, 2, 6), "dims": (0, 2)},
            lambda x: np.broadcast_to(x[:, None], (4, 2, 6)),
        ),
        Sample(
            (X[:, :1],),
            {"shape": (2, 4, 6), "dims": (1, 2)},
            lambda x: np.broadcast_to(x, (2, 4, 6)),
        ),
        Sample((np.float32(3),), {"shape": (2, 3), "dims": ()}, lambda x: np.full((2, 3), x)),
        Sample((INTS,), {"shape": (4, 6), "dims": (0, 1)}, lambda x: x, placed=False),
    ],
    "transpose": [
        Sample((CUBE,), {"perm": (2, 0, 1)}, lambda x: x.transpose(2, 0, 1)),
        Sample((INTS,), {"perm": (0, 1)}, lambda x: x, placed=False),
    ],
    "reshape": [
        _reshape(X, 24, placed=True),
        _reshape(X, 2, 2, 6, placed=True),
        _reshape(X, 6, 4, placed=True),
        _reshape(CUBE, 8, 6, placed=True),
        _reshape(X, 4, 1, 6, placed=True),
        _reshape(CUBE, 2, 1, 24, placed=True),
        _reshape(X[:, None], 4, 6, placed=True),
        _reshape(CUBE, 8, 6, 1, placed=True),
        _reshape(X[:2].ravel(), 3, 4, placed=True),
        _reshape(COMPLEX, 1, 24),
        _reshape(BOOLS, 24),
        _reshape(np.float32(1), 1, 1),
        _reshape(np.zeros((0, 3), np.float32), 3, 0, 2),
        _reshape(X[:1, :1]),
    ],
    "sharding_constraint": [
        Sample(
            (X,),
            {"sharding": NamedSharding(simulated_mesh((2,), ("x",)), P(None, "x"))},
            lambda x: x,
            placed=False,
        )
    ],
    "reshard": [
        Sample(
            (X,),
            {"sharding": NamedSharding(simulated_mesh((2,), ("x",)), P(None, "x"))},
            lambda x: x,
            placed=False,
        ),
        Sample((X,), {"sharding": None}, lambda x: x, placed=False),
    ],
    "convert_element_type": [
        _cast(X, np.float16, placed=True),
        _cast(X, ml_dtypes.bfloat16),
        _cast(X, np.complex64),
        _cast(X * 5, np.int32),
        _cast(INTS, np.float32),
        _cast(INTS, np.uint8),
        _cast(X, bool),
        _cast(INTS, bool),
        _cast(BOOLS, np.float32),
        _cast(X, ml_dtypes.float8_e4m3fn),
        Sample((COMPLEX,), {"dtype": np.dtype(np.complex64)}, lambda z: z),
        Sample((X,), {"dtype": np.dtype(np.float32), "weak": True}, lambda x: x, placed=False),
        Sample((COMPLEX,), {"dtype": np.dtype(np.float32)}, np.real, placed=False),
    ],
}
