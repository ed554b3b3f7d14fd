"""The text forms of types, constants and shardings in StableHLO and Shardy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached, exact
from shardwise._src.runtime.backend import JAXLIB
from shardwise._src.types.array_type import ArrayType, check_countable
from shardwise._src.types.dtypes import float0
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.partition_spec import UNCONSTRAINED
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.types.symbolic import Symbolic

_ELEMENTS = {
    "bool": "i1",
    "float8_e3m4": "f8E3M4",
    "float8_e4m3": "f8E4M3",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU",
    "float4_e2m1fn": "f4E2M1FN",
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}
for _bits in (2, 4, 8, 16, 32, 64):
    _ELEMENTS[f"int{_bits}"] = f"i{_bits}"
    _ELEMENTS[f"uint{_bits}"] = f"ui{_bits}"


def element_text(dtype: Any) -> str:
    """`f32`, `ui8`, `complex<f32>`: a dtype in StableHLO's syntax."""
    try:
        return _ELEMENTS[dtype.name]
    except KeyError:
        raise TypeError(f"dtype {dtype} has no representation on devices") from None


@cached(8192)
def tensor_text(aval: ArrayType) -> str:
    """`tensor<8x4xf32>`."""
    check_countable(aval)
    shape, dtype = aval.shape, aval.dtype
    if isinstance(dtype, ExtendedDType):
        shape, dtype = shape + dtype.physical_shape, dtype.physical_dtype
    sizes = ["?" if isinstance(n, Symbolic) else n for n in shape]
    return f"tensor<{''.join(f'{n}x' for n in sizes)}{element_text(dtype)}>"


def literal_text(value: Any, dtype: Any) -> str:
    """A scalar constant of `dtype`, bit-exact."""
    if value.__class__ is np.ndarray:
        value = value[()]
    return _literal_text(value, dtype, exact(value))


@cached(4096)
def _literal_text(value: Any, dtype: Any, mark: Any) -> str:
    scalar = np.asarray(value).astype(dtype)[()]
    if dtype.kind == "b":
        return "true" if scalar else "false"
    if dtype.kind in "iu" or dtype.name.startswith(("int", "uint")):
        return str(int(scalar))
    if dtype.kind == "c":
        half = np.dtype("float32" if dtype.itemsize == 8 else "float64")
        return f"({literal_text(np.real(scalar), half)}, {literal_text(np.imag(scalar), half)})"
    wide = float(scalar)
    if np.isfinite(wide):
        text = repr(wide)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    bits = np.asarray(scalar).view(f"u{dtype.itemsize}").item()
    return f"0x{bits:0{dtype.itemsize * 2}X}"


@cached(4096)
def constant_text(value: Any, t: ArrayType, mark: Any) -> str:
    return f"stablehlo.constant dense<{literal_text(value, t.dtype)}> : {tensor_text(t)}"


def quoted(text: str | bytes) -> str:
    """An MLIR string literal: characters other than plain ASCII as hexadecimal bytes."""
    data = text.encode() if isinstance(text, str) else text
    safe = [chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data]
    return f'"{"".join(safe)}"'


def attribute_text(value: Any) -> str:
    """A number, string or NumPy array, or a pytree of them, as an attribute: `[1 : i64, "a"]`.

    Raises TypeError for anything else; the caller adds the subject to the message.
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str | bytes):
        return quoted(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise TypeError(f"is {value}, which has more than 64 bits.")
    if isinstance(value, int | float):
        value = np.int64(value) if isinstance(value, int) else np.float64(value)
    if isinstance(value, np.generic) and value.dtype.kind != "c":
        return f"{literal_text(value, value.dtype)} : {element_text(value.dtype)}"
    if isinstance(value, np.ndarray):
        value = np.zeros(value.shape, bool) if value.dtype == float0 else value
        shape = "".join(f"{n}x" for n in value.shape)
        return f"dense<{_nested(value)}> : tensor<{shape}{element_text(value.dtype)}>"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return f"{{{', '.join(f'{quoted(k)} = {attribute_text(v)}' for k, v in value.items())}}}"
    raise TypeError(
        f"is of type {type(value).__name__}; attributes are booleans, integers, floats, strings, "
        "NumPy arrays, and tuples, lists and dictionaries of them."
    )


def _nested(value: np.ndarray) -> str:
    if value.ndim:
        return f"[{', '.join(map(_nested, value))}]" if value.size else ""
    return literal_text(value, value.dtype)


def reference_text(name: str) -> str:
    """A reference to a symbol: `@name`, or `@"a name"`."""
    plain = re.fullmatch(r"[A-Za-z_][\w$.]*", name, re.ASCII)
    return f"@{name if plain else quoted(name)}"


def symbol_text(name: str) -> str:
    """A name as a symbol; MLIR accepts ASCII only."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def turned(sharding: NamedSharding, ndim: int) -> list[tuple[Any, ...]] | None:
    """XLA error `turned-axes`: a dimension that is split over axes out of the mesh's order.

    Such a sharding uses a separate mesh, in which the axes of a dimension are one axis: returns its
    axes, in order. None if the mesh itself works.
    """
    names, used = sharding.mesh.axis_names, sharding.spec.axes
    if JAXLIB < (0, 12) or len(used) < 2:
        return None
    rows = sharding.spec.dims(ndim)
    places = [[names.index(a) for a in axes] for axes in rows]
    if all(p == sorted(p) for p in places):
        return None
    return [*[axes for axes in rows if axes], *[(name,) for name in names if name not in used]]


def axis_text(names: Sequence[Any]) -> str:
    """The name, in the text, of axes that are emitted as one."""
    return ":".join(map(str, names))


def unreduced_text(sharding: Any) -> str:
    """`, unreduced={"x"}`: the end of a sharding; '' if it has no such axes."""
    spec, names = sharding.spec, sharding.mesh.axis_names
    row = ", ".join([f'"{a}"' for a in names if a in spec.unreduced])
    return f", unreduced={{{row}}}" if row else ""


def sharding_dims(sharding: Any, ndim: int) -> str:
    """`{"x"}, {}`: the axes of each dimension; open if unconstrained.

    A sharding in a type does not specify Auto axes: `{"x", ?}`.
    """
    mesh, as_one = sharding.mesh, turned(sharding, ndim) is not None
    more = isinstance(mesh, AbstractMesh) and mesh.explicit_axes and mesh.auto_axes
    texts = []
    for d, axes in enumerate(sharding.spec.dims(ndim)):
        texts_of = [axis_text(axes)] if as_one and axes else map(str, axes)
        names = ", ".join(f'"{a}"' for a in texts_of)
        free = d < len(sharding.spec) and sharding.spec[d] is UNCONSTRAINED
        names += ", ?" if more and names else "?" if more or free else ""
        texts.append(f"{{{names}}}")
    return ", ".join(texts)


def return_text(keyword: str, names: Sequence[str], types: Sequence[ArrayType]) -> str:
    if not names:
        return keyword
    return f"{keyword} {', '.join(names)} : {', '.join(tensor_text(t) for t in types)}"
