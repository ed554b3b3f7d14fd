"""Reads files of exported functions: our own are verified by digest, JAX's field by field.

Files that JAX writes have no digest: every field is checked, and the module is first parsed in a
separate process.
"""

from __future__ import annotations

import hashlib
from typing import Any

from shardwise._src.base.config import enable_x64
from shardwise._src.export import tree_records
from shardwise._src.export.calling import Exported
from shardwise._src.export.export_files import (
    AXIS_TYPES,
    END,
    EXPORTED,
    FIRST_KEY,
    FLOAT0,
    KEYS,
    MARK,
    NAMES,
    VERSION,
    WRITER,
)
from shardwise._src.export.exported_data import Shardings, type_in_module
from shardwise._src.export.symbolic_dims import Dim
from shardwise._src.export.symbolic_shapes import SymbolicScope, symbolic_shape
from shardwise._src.export.tables import Damaged, Table
from shardwise._src.export.tables import read as read_table
from shardwise._src.export.versions import (
    WHERE,
    DisabledSafetyCheck,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from shardwise._src.lowering.text import tensor_text
from shardwise._src.ops.random.bits import THREEFRY
from shardwise._src.random.generators import key_dtype
from shardwise._src.runtime.compiler.portable import (
    Unreadable,
    artifact_text,
    foreign_text,
    parts_of,
)
from shardwise._src.types.array_type import ArrayType, array_type, with_sharding
from shardwise._src.types.dtypes import canonicalize, float0
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding


def deserialize(blob: bytes | bytearray | memoryview) -> Exported:
    """The exported function from bytes that `Exported.serialize` returned, here or in JAX.

    Bytes from this library are verified by their digest before any other use. Bytes from JAX have
    no digest: their module is first parsed in a separate process, which takes about a second, so
    that malformed bytes cannot crash this one; altered bytes may still parse as another function.

    Raises:
      TypeError: the argument is not bytes.
      ValueError: the bytes are truncated, altered, or not an exported function; a later release
        wrote them; or they contain custom containers that are not registered.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise TypeError(f"{WHERE}.deserialize takes bytes; got {type(blob).__name__}.")
    data = bytes(blob)
    try:
        body, whole = _checked(data)
        return _exported(read_table(EXPORTED, body), whole)
    except (Damaged, Unreadable) as error:
        raise ValueError(
            f"{WHERE}.deserialize: these {len(data)} bytes are not an exported function: {error}. "
            "Pass the bytes that the `serialize()` of an exported function returned; these were "
            "truncated or altered, or are something else."
        ) from None


def _checked(data: bytes) -> tuple[bytes, bool]:
    """The bytes of the tables, and whether a digest has verified them."""
    if len(data) >= END.size:
        mark, version, digest = END.unpack(data[-END.size :])
        if mark == MARK:
            if hashlib.sha256(data[: -len(digest)]).digest() != digest:
                raise Damaged("their digest does not match")
            if version > VERSION:
                raise Damaged(
                    f"their version is {version}, and this release reads versions up to {VERSION}"
                )
            return data[: -END.size], True
    if read_table(Table("file", writer=EXPORTED.fields["writer"]), data)["writer"] == WRITER:
        raise Damaged("their end, with the digest, is missing or altered")
    return data, False


def _exported(fields: dict[str, Any], whole: bool) -> Exported:
    if fields["ordered"]:
        raise Damaged("its function has ordered effects, which are not supported here")
    ins, outs = _shardings(fields, "in"), _shardings(fields, "out")
    scope = SymbolicScope()
    in_types, out_types = _types(fields, "in", scope), _types(fields, "out", scope)
    for places, types in ((ins, in_types), (outs, out_types)):
        if len(places) != len(types):
            raise Damaged(f"it has {len(places)} shardings for {len(types)} types")
    in_types, out_types = (
        tuple(map(with_sharding, types, places))
        for types, places in ((in_types, ins), (out_types, outs))
    )
    convention, kept = fields["convention"] or 0, fields["kept"] or []
    low = minimum_supported_calling_convention_version
    high = maximum_supported_calling_convention_version
    if not low <= convention <= high:
        raise Damaged(f"its calling convention version {convention} is not in {low} to {high}")
    if sorted({*kept}) != kept or (kept and kept[-1] >= len(in_types)):
        raise Damaged(f"its module takes the arguments {kept} of {len(in_types)}")
    platforms = tuple(fields["platforms"] or ())
    if not platforms or fields["module"] is None or fields["name"] is None:
        raise Damaged("it has no name, no platforms or no module")
    checks = [
        DisabledSafetyCheck.custom_call(c["target"] or "")
        if c["kind"] == 1
        else DisabledSafetyCheck.platform()
        for c in fields["checks"] or ()
    ]
    text = artifact_text(fields["module"]) if whole else foreign_text(fields["module"])
    vjp = None if fields["vjp"] is None else _exported(fields["vjp"], whole)
    found = Exported(
        fun_name=fields["name"],
        in_tree=tree_records.read(fields["in_tree"], len(in_types), "pytree of arguments"),
        in_avals=in_types,
        out_tree=tree_records.read(fields["out_tree"], len(out_types), "pytree of results"),
        out_avals=out_types, _in_named_shardings=ins, _out_named_shardings=outs,
        nr_devices=fields["devices"] or fields["devices_short"] or 1, platforms=platforms,
        disabled_safety_checks=tuple(checks),
        mlir_module_serialized=fields["module"], calling_convention_version=convention,
        module_kept_var_idx=tuple(kept), uses_global_constants=bool(fields["dynamic"]),
        _text=text, _get_vjp=None if vjp is None else lambda this: vjp,
    )  # fmt: skip
    _check_module(found)
    return found


def _check_module(exported: Exported) -> None:
    """Raises if the module's arguments and results do not match the declared types."""
    mains = [p for p in parts_of(exported.mlir_module()) if p.symbol == "main"]
    if len(mains) != 1:
        raise Damaged("its module has no function `main`")
    kept = [exported.in_avals[i] for i in exported.module_kept_var_idx]
    ins = list(mains[0].ins)
    if len(exported.platforms) > 1 and ins:
        ins.pop(0)
    for what, types, found in (("takes", kept, ins), ("gives", exported.out_avals, mains[0].outs)):
        wanted = [tensor_text(type_in_module(t)) for t in types]
        if wanted != list(found):
            raise Damaged(f"its module {what} {', '.join(found)} instead of {', '.join(wanted)}")


def _types(fields: dict[str, Any], side: str, scope: SymbolicScope) -> tuple[ArrayType, ...]:
    numbers, rows = fields[f"{side}_type_numbers"], fields[f"{side}_types"] or []
    if numbers:
        unique = fields["types"] or []
        if max(numbers) >= len(unique):
            raise Damaged(f"it has {len(unique)} types, but refers to type {max(numbers)}")
        rows = [unique[i] for i in numbers]
    return tuple([_read_type(row, scope) for row in rows])


def _read_type(row: dict[str, Any], scope: SymbolicScope) -> ArrayType:
    number = row["dtype"] or 0
    if number == FLOAT0:
        dtype: Any = float0
    elif number in KEYS:
        dtype = THREEFRY if number == FIRST_KEY else key_dtype(KEYS[number])
    elif 0 <= number < len(NAMES):
        with enable_x64(True):  # as it was exported
            dtype = canonicalize(NAMES[number])
    else:
        raise Damaged(f"it has a type of dtype {number}, which is unknown")
    texts = row["shape"] or ()
    try:
        shape = symbolic_shape(",".join(texts), scope=scope)
        if any(not isinstance(n, Dim) and n < 0 for n in shape) or len(shape) != len(texts):
            raise ValueError
    except ValueError:
        raise Damaged(f"it has a type of shape {row['shape']}") from None
    return array_type(shape, dtype)


def _shardings(fields: dict[str, Any], side: str) -> Shardings:
    numbers, rows = fields[f"{side}_numbers"], fields[f"{side}s"] or []
    if numbers:
        unique = [None, *(fields["shardings"] or [])]
        if max(numbers) >= len(unique):
            raise Damaged(f"it has {len(unique)} shardings, but refers to number {max(numbers)}")
        return tuple([_read_sharding(unique[i], fields["meshes"]) for i in numbers])
    if any(row["hlo"] for row in rows):
        raise Damaged("its shardings are in a format that JAX wrote before 2026")
    return tuple([_read_sharding(row["sharding"], fields["meshes"]) for row in rows])


def _read_sharding(row: dict[str, Any] | None, meshes: Any) -> NamedSharding | None:
    if row is None:
        return None
    number = row["mesh_number"] or 0
    mesh = meshes[number] if meshes and number < len(meshes) else row["mesh"]
    spec = row["spec"]
    if mesh is None or spec is None:
        raise Damaged("it has a sharding without a mesh or a spec")
    try:
        types = tuple([AXIS_TYPES[t] for t in mesh["axis_types"] or ()])
        names = tuple(mesh["axis_names"] or ())
        over = AbstractMesh(tuple(mesh["axis_sizes"] or ()), names, axis_types=types)
        entries = [tuple(e["axes"] or ()) for e in spec["partitions"] or ()]
        sums, whole = (frozenset(spec[n] or ()) for n in ("unreduced", "reduced"))
        wanted = PartitionSpec(*entries, unreduced=sums, reduced=whole)
        kind = None if row["memory_kind"] == "device" else row["memory_kind"]
        return NamedSharding(over, wanted, kind) if over.size > 1 else None
    except (ValueError, TypeError, IndexError) as error:
        raise Damaged(f"it has an invalid sharding: {error}") from None
