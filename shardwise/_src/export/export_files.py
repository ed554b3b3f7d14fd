"""Files of exported functions: JAX's format, followed by a digest.

JAX writes a FlatBuffer (`tables`) with the fields `EXPORTED`. This library writes the same fields,
then, where JAX does not look, a magic number, a version and a digest of all preceding bytes. They
are checked before the bytes are used in any other way (`reading`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

from shardwise._src.export import tree_records
from shardwise._src.export.exported_data import ExportedData
from shardwise._src.export.tables import (
    BOOL,
    BYTES,
    I8,
    I16,
    TEXT,
    U8,
    U16,
    U32,
    Many,
    Table,
    write,
)
from shardwise._src.export.versions import WHERE
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.sharding import NamedSharding

MARK, VERSION = b"shardwise.export", 1
END = struct.Struct("<16sI32s")  # magic number, version, SHA-256 of all preceding bytes
_FORMAT = 12  # the version of JAX's format that is written
WRITER = "shardwise"

TREE = Table(
    "tree",
    kind=(0, I8),
    children_names=(2, Many(TEXT)),
    custom_name=(3, TEXT),
    custom_auxdata=(4, BYTES),
)
TREE.add(children=(1, Many(TREE)))
_MESH = Table(
    "mesh", axis_sizes=(0, Many(U32)), axis_names=(1, Many(TEXT)), axis_types=(2, Many(U8))
)
_AXES = Table("axes", axes=(0, Many(TEXT)))
_SPEC = Table(
    "spec", partitions=(0, Many(_AXES)), reduced=(1, Many(TEXT)), unreduced=(2, Many(TEXT))
)
_SHARDING = Table(
    "sharding", mesh=(0, _MESH), spec=(1, _SPEC), memory_kind=(2, TEXT), mesh_number=(3, U32)
)
_MAYBE = Table("place", kind=(0, I8), hlo=(1, BYTES), sharding=(2, _SHARDING))
_TYPE = Table("type", kind=(0, I8), shape=(1, Many(TEXT)), dtype=(2, I8), memory=(3, I8))
_EFFECT = Table("effect", name=(0, TEXT))
_CHECK = Table("check", kind=(0, I8), target=(1, TEXT))
EXPORTED = Table(
    "file", version=(0, U16), name=(1, TEXT), in_tree=(2, TREE), in_types=(3, Many(_TYPE)),
    out_tree=(4, TREE), out_types=(5, Many(_TYPE)), devices_short=(6, I16),
    ins=(7, Many(_MAYBE)), outs=(8, Many(_MAYBE)), platforms=(9, Many(TEXT)),
    ordered=(10, Many(_EFFECT)), unordered=(11, Many(_EFFECT)), checks=(12, Many(_CHECK)),
    module=(13, BYTES), convention=(14, U16), kept=(15, Many(U16)), dynamic=(16, BOOL),
    devices=(18, U32), types=(19, Many(_TYPE)), meshes=(20, Many(_MESH)),
    shardings=(21, Many(_SHARDING)), in_type_numbers=(22, Many(U32)),
    out_type_numbers=(23, Many(U32)), in_numbers=(24, Many(U32)), out_numbers=(25, Many(U32)),
    writer=(26, TEXT),
)  # fmt: skip
EXPORTED.add(vjp=(17, EXPORTED))

NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 bfloat16 int4 uint4 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz - float8_e4m3 float8_e3m4 float8_e8m0fnu float4_e2m1fn"
).split()
KEYS = {27: "threefry2x32", 28: "rbg", 29: "unsafe_rbg"}
FLOAT0, FIRST_KEY, _DEVICE_MEMORY = 22, 27, 1
AXIS_TYPES = (None, AxisType.Auto, AxisType.Explicit, AxisType.Manual)


def serialized(exported: ExportedData, vjp_order: int) -> bytes:
    """`Exported.serialize`."""
    body = write(EXPORTED, _fields(exported, vjp_order))
    head = body + struct.pack("<16sI", MARK, VERSION)
    return head + hashlib.sha256(head).digest()


def _fields(exported: ExportedData, vjp_order: int) -> dict[str, Any]:
    ins, outs = exported._in_named_shardings, exported._out_named_shardings
    shardings = [*dict.fromkeys(s for s in (*ins, *outs) if s is not None)]
    meshes = [*dict.fromkeys(s.mesh.abstract_mesh for s in shardings)]
    numbers = {None: 0} | {s: i + 1 for i, s in enumerate(shardings)}
    types = (*exported.in_avals, *exported.out_avals)
    written = [_type(t) for t in types]
    keys = [repr(row) for row in written]
    unique = [*dict.fromkeys(keys)]
    of_types = [unique.index(k) for k in keys]
    rows = [_sharding(s, meshes) for s in shardings]
    places = [{"sharding": None if s is None else rows[numbers[s] - 1]} for s in (*ins, *outs)]
    count, targets = len(ins), [c.is_custom_call() for c in exported.disabled_safety_checks]
    return {
        "version": _FORMAT, "name": exported.fun_name,
        "in_tree": tree_records.written(exported.in_tree), "in_types": written[:count],
        "out_tree": tree_records.written(exported.out_tree), "out_types": written[count:],
        "ins": places[:count], "outs": places[count:], "platforms": exported.platforms,
        "ordered": [], "unordered": [],
        "checks": [{"kind": int(t is not None), "target": t} for t in targets],
        "module": exported.mlir_module_serialized,
        "convention": exported.calling_convention_version, "kept": exported.module_kept_var_idx,
        "dynamic": exported.uses_global_constants,
        "vjp": _fields(exported.vjp(), vjp_order - 1) if vjp_order > 0 else None,
        "devices": exported.nr_devices, "types": [written[keys.index(k)] for k in unique],
        "meshes": [*map(_mesh, meshes)], "shardings": rows,
        "in_type_numbers": of_types[:count], "out_type_numbers": of_types[count:],
        "in_numbers": [numbers[s] for s in ins], "out_numbers": [numbers[s] for s in outs],
        "writer": WRITER,
    }  # fmt: skip


def _type(t: ArrayType) -> dict[str, Any]:
    impl = getattr(t.dtype, "impl_name", None)
    if impl is not None:
        found = [number for number, name in KEYS.items() if name == impl]
    elif t.dtype == float0:
        found = [FLOAT0]
    else:
        found = [i for i, name in enumerate(NAMES) if name == t.dtype.name]
    if not found:
        raise ValueError(
            f"{WHERE}: arrays of dtype {t.dtype} cannot be serialized; an argument or result "
            f"has type {t.str_short(True)}."
        )
    shape = [str(n) for n in t.shape]
    return {"kind": 0, "shape": shape, "dtype": found[0], "memory": _DEVICE_MEMORY}


def _mesh(mesh: AbstractMesh) -> dict[str, Any]:
    return {
        "axis_sizes": mesh.axis_sizes,
        "axis_names": [*map(str, mesh.axis_names)],
        "axis_types": [AXIS_TYPES.index(t) for t in mesh.axis_types],
    }


def _sharding(sharding: NamedSharding, meshes: Sequence[Any]) -> dict[str, Any]:
    spec, mesh = sharding.spec, sharding.mesh.abstract_mesh
    entries = [{"axes": [*map(str, axes)]} for axes in spec.dims(len(spec))]
    return {
        "mesh": _mesh(mesh),
        "mesh_number": meshes.index(mesh),
        "memory_kind": sharding.memory_kind,
        "spec": {
            "partitions": entries,
            "reduced": sorted(map(str, spec.reduced)),
            "unreduced": sorted(map(str, spec.unreduced)),
        },
    }
