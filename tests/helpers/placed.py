"""The same values in every kind of sharding, for tests that must pass for each of them."""

import ml_dtypes
import numpy as np

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import MESH

DEVICES = sw.devices()[:8]
BACK = Mesh(np.array(DEVICES[::-1]).reshape(2, 4), ("a", "b"))

PLACES = {
    "one": SingleDeviceSharding(DEVICES[0]),
    "another": SingleDeviceSharding(DEVICES[5]),
    "replicated": NamedSharding(MESH, P()),
    "partly replicated": NamedSharding(MESH, P("x")),
    "sharded": NamedSharding(MESH, P(("x", "y"))),
    "reversed": NamedSharding(BACK, P(("b", "a"))),
}

# With 9 rows over 8 devices some shards are short and some empty; 8 rows are even.
ROWS = {"even": 8, "uneven": 9, "few": 3, "none": 0}

DTYPES = [
    np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "bool",
        "int2",
        "int4",
        "int8",
        "int16",
        "int32",
        "uint2",
        "uint4",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "bfloat16",
        "float32",
        "complex64",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3b11fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
    )
]


def values(rows: int, dtype=np.float32) -> np.ndarray:
    """rows × 2 numbers that every dtype can represent."""
    counts = np.arange(2 * rows).reshape(rows, 2) % 3
    return (counts % 2 if np.dtype(dtype).name in ("bool", "int2") else counts + 1).astype(dtype)


def placed(place: str, rows: str, dtype=np.float32):
    """The host values, and an array with these values."""
    host = values(ROWS[rows], dtype)
    return host, sw.device_put(host, PLACES[place])
