"""`Exported`: an exported function that can be called and serialized.

A call is an op whose lowering embeds the exported module's functions.

A module for several platforms, or with symbolic dimensions, is first refined separately, for the
platform and the shapes of the call. The surrounding program therefore has static shapes only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import stored_type
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.export.export_files import serialized
from shardwise._src.export.exported_data import ExportedData, type_in_module
from shardwise._src.export.solving import solved
from shardwise._src.export.symbolic_dims import Dim
from shardwise._src.export.versions import WHERE, DisabledSafetyCheck
from shardwise._src.jit.jit import jit
from shardwise._src.lowering.text import symbol_text, tensor_text
from shardwise._src.messages.formatting import join
from shardwise._src.messages.tree_paths import paths_in, tree_difference, tree_text
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.compiler.portable import Part, Unreadable, parts_of, refined_text
from shardwise._src.runtime.cuda import register_host_functions
from shardwise._src.runtime.platforms import Platform
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType, with_sharding
from shardwise._src.types.dtypes import float0, is_inexact
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding


@dataclass(frozen=True, eq=False, repr=False)
class Exported(ExportedData):
    """A function as a StableHLO module. `call` runs it, `serialize` converts it to bytes.

    The fields are those of `ExportedData`.
    """

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Serializes to JAX's format, for `deserialize` here or in JAX.

        Args:
          vjp_order: how many times the deserialized function can be differentiated.
        """
        return bytearray(serialized(self, vjp_order))

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results for arguments with the pytree and types that it was exported for.

        It may be called in functions that are jitted or differentiated in reverse mode; `vmap`
        raises. Sharded arguments are resharded to the exported shardings; they must be on the same
        number of devices.

        Raises:
          ValueError: for arguments with another pytree or type, or on other platforms or devices.
        """
        leaves, tree = flatten((args, kwargs))
        if tree != self.in_tree:
            rows = zip(("args", "kwargs"), self.in_tree.children(), tree.children(), strict=True)
            sides = [(root, a, b) for root, a, b in rows if a != b]
            where = [tree_difference("the export", a, "the call", b, r) for r, a, b in sides]
            raise ValueError(
                f"call of the exported {self.fun_name}: it takes arguments with the pytree "
                f"structure {tree_text(self.in_tree)}; got {tree_text(tree)}: {'; '.join(where)}."
            )
        return self.out_tree.unflatten(self._cached("flat", _flat, self)(*leaves))


def _flat(exported: ExportedData) -> Any:
    """The exported function of flat leaves, with its vjp."""

    def run(*leaves: Any) -> tuple[Any, ...]:
        return tuple(bound(exported, leaves))

    run.__name__ = exported.fun_name
    call = custom_vjp(run)

    def forward(*leaves: Any) -> tuple[Any, Any]:
        return call(*leaves), leaves

    def backward(leaves: Any, cts: Any) -> tuple[Any, ...]:
        pullback = exported.vjp()
        grads = pullback._cached("flat", _flat, pullback)(*leaves, *_beside(exported, leaves, cts))
        moving = [is_inexact(t.dtype) for t in exported.in_avals]
        return tuple([g if m else None for g, m in zip(grads, moving, strict=True)])

    call.defvjp(forward, backward)
    return call


def bound(exported: ExportedData, leaves: Sequence[Any]) -> list[Any]:
    """The results for checked arguments, flat. None for a result of dtype float0."""
    wanted = exported.in_avals
    trivial = [t.dtype == float0 for t in wanted]
    types = [t if no else type_of(x) for t, x, no in zip(wanted, leaves, trivial, strict=True)]
    names = functools.partial(argument_names, exported)
    sizes = solved(f"call of the exported {exported.fun_name}", wanted, types, names)
    outs = [
        t.update(shape=tuple([n.at(sizes) if isinstance(n, Dim) else n for n in t.shape]))
        for t in exported.out_avals
    ]
    pairs = zip(outs, exported._out_named_shardings, strict=True)
    given = [with_sharding(t, s) for t, s in pairs if t.dtype != float0]
    kept = exported.module_kept_var_idx
    values, shapes = [leaves[i] for i in kept], tuple([types[i].shape for i in kept])
    found = iter(CALL_EXPORTED(*values, exported=exported, results=tuple(given), shapes=shapes))
    return [None if t.dtype == float0 else next(found) for t in outs]


def _beside(exported: ExportedData, leaves: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """Cotangents; those not on the devices of the arguments are resharded to them."""
    count = exported.nr_devices
    meshes = [
        x.sharding.mesh
        for x in leaves
        if count > 1
        and x.__class__ is Array
        and isinstance(x.sharding, NamedSharding)
        and x.sharding.num_devices == count
    ]
    if not meshes:
        return list(cts)
    rows = zip(cts, exported._out_named_shardings, strict=True)
    found = []
    for ct, place in rows:
        if ct.__class__ is Array and len(ct.sharding.device_set) < count:
            spec = place.spec if place and place.mesh == meshes[0].abstract_mesh else P()
            ct = EAGER.place(ct, NamedSharding(meshes[0], spec))
        found.append(ct)
    return found


def argument_names(exported: ExportedData) -> list[str]:
    """A name for each flat argument, such as `args[0]['w']`."""
    rows = zip(("args", "kwargs"), exported.in_tree.children(), strict=True)
    return [name for root, tree in rows for name in paths_in(root, tree)]


# -- the op --


def _eager(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Runs the call as a separate program, compiled like a jitted function."""
    exported = params["exported"]

    def run(*values: Any) -> list[Any]:
        return op(*values, **params)

    run.__name__ = exported.fun_name
    return exported._cached((params["results"], params["shapes"]), jit, run)(*args)


def _batch(op: Op, *rest: Any, exported: ExportedData, **params: Any) -> NoReturn:
    raise NotImplementedError(
        f"vmap of the exported {exported.fun_name} is not supported: its module is fixed to the "
        "shapes that it was exported for. Export the mapped function: "
        f"{WHERE}.export(jit(vmap(f)))."
    )


def _lower(
    op: Op,
    e: Any,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    *xs: str,
    exported: ExportedData,
    **params: Any,
) -> list[str]:
    several = exported.nr_devices > 1
    if several and exported.nr_devices != e.devices:
        raise ValueError(
            f"{exported.fun_name} was exported for {exported.nr_devices} devices, but is called on "
            f"{e.devices}. Place its arguments on a mesh of {exported.nr_devices} devices: "
            "`in_shardings_jax(mesh)` returns their shardings."
        )
    number = _platform(exported, e.platform)
    text = exported.mlir_module()
    held = [stored_type(t) for t in ins]
    results = [stored_type(t) for t in outs]
    if exported.uses_global_constants:
        key = number, *map(tensor_text, held), *map(tensor_text, results)
        text = exported._cached(key, _for_types, exported, number, held, results)
    if "cuhybrid_" in text and "cusolver" in e.platform.linalg:
        register_host_functions()
    key = exported, number, params["shapes"]
    if key not in e.foreign:
        e.foreign[key] = _embedded(e, exported, text)
    if several:
        own = [exported._in_named_shardings[i] for i in exported.module_kept_var_idx]
        xs = tuple(_placed(e, xs, held, own))
    given = ", ".join(map(tensor_text, held))
    gives = [tensor_text(type_in_module(t)) for t in exported.out_avals]
    if exported.uses_global_constants:
        gives = [*map(tensor_text, results)]
    names = e.lets(
        f"func.call @{e.foreign[key]}({', '.join(xs)}) : ({given}) -> ({', '.join(gives)})",
        len(gives),
    )
    if not exported.uses_global_constants:
        names = [n for n, t in zip(names, exported.out_avals, strict=True) if t.dtype != float0]
    if several:
        rows = zip(exported._out_named_shardings, exported.out_avals, strict=True)
        names = _placed(e, names, results, [s for s, t in rows if t.dtype != float0])
    return list(names)


def _placed(e: Any, names: Sequence[str], types: Sequence[Any], where: Sequence[Any]) -> list[str]:
    rows = zip(names, types, where, strict=True)
    return [n if s is None else e.constrained(n, t, s) for n, t, s in rows]


def _platform(exported: ExportedData, here: Platform) -> int:
    """The index of the platform among the platforms of the export."""
    for name in here.names:
        if name in exported.platforms:
            return exported.platforms.index(name)
    if DisabledSafetyCheck.platform() in exported.disabled_safety_checks:
        return 0
    raise ValueError(
        f"{exported.fun_name} was exported for {join(exported.platforms)}, but is called on "
        f"{here.name!r}. Export it with platforms={(*exported.platforms, here.name)}."
    )


_TOKEN = re.compile(
    r'(?:custom_call )?@"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*"|(?:custom_call )?@[\w$.-]+'
)


def _private(text: str, names: dict[str, str]) -> str:
    """A function's text with its symbols renamed; the function becomes private."""

    def new(found: re.Match[str]) -> str:
        token = found[0]
        name = names.get(token[1:].strip('"')) if token[0] == "@" else None
        return token if name is None else f"@{name}"

    return _TOKEN.sub(new, text).replace("func.func public ", "func.func private ", 1)


def _embedded(e: Any, exported: ExportedData, text: str) -> str:
    """Writes the functions of a module; returns the symbol of its `main`."""
    parts = _parts(exported, text)
    functions = [p for p in parts if p.text.lstrip().startswith("func.func")]
    names = {
        p.symbol: e.symbol(f"exported_{exported.fun_name}" if p.symbol == "main" else p.symbol)
        for p in functions
    }
    names |= {p.symbol: _mesh_symbol(e, exported, p) for p in parts if p not in functions}
    e.functions += [_private(p.text, names) for p in functions]
    return names["main"]


_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"=(\d+)')
_IDS = re.compile(r"device_ids=\[([\d, ]*)\]")


def _mesh_symbol(e: Any, exported: ExportedData, part: Part) -> str:
    """The surrounding module's symbol for a mesh equal to the one in `part`."""
    inner = part.text[part.text.index("<") : part.text.index(">")]
    axes = tuple([(name, int(size)) for name, size in _AXIS.findall(inner)])
    ids = _IDS.search(inner)
    if e.meshes is None or exported.nr_devices == 1:
        raise NotImplementedError(
            f"{exported.fun_name} was exported for one device with a mesh in its module; calling "
            "it is not supported yet. Export it without shardings."
        )
    order = tuple(map(int, ids[1].split(","))) if ids else tuple(range(exported.nr_devices))
    if not axes:
        return e.meshes.one_of(order[0]) if ids else e.meshes.mesh_of((), ())
    return e.meshes.mesh_of(axes, order)


def _parts(exported: ExportedData, text: str) -> list[Part]:
    return exported._cached((parts_of, text), parts_of, text)


def _for_types(
    exported: ExportedData, number: int, ins: Sequence[ArrayType], outs: Sequence[ArrayType]
) -> str:
    """The module for a platform and these types: refined, or with a conversion if symbolic."""
    parts = _parts(exported, exported.mlir_module())
    main = next(p for p in parts if p.symbol == "main")
    wanted = list(main.ins)
    called = "inner_main" + "_" * len(parts)  # which no part has: parts may be such modules
    lines, args = [], [f"%arg{i}" for i in range(len(ins))]
    if len(exported.platforms) > 1:
        lines.append(f"%platform = stablehlo.constant dense<{number}> : {wanted.pop(0)}")
    rows = list(zip(args, map(tensor_text, ins), wanted, strict=True))
    lines += [f"{a}_ = stablehlo.convert {a} : ({t}) -> {w}" for a, t, w in rows]
    given = ["%platform"] * (len(exported.platforms) > 1) + [f"{a}_" for a in args]
    lines.append(
        f"%out:{len(main.outs)} = func.call @{called}({', '.join(given)}) : "
        f"({', '.join(main.ins)}) -> ({', '.join(main.outs)})"
    )
    moving = [i for i, t in enumerate(exported.out_avals) if t.dtype != float0]
    types = list(map(tensor_text, outs))
    lines += [
        f"%r{i} = stablehlo.convert %out#{i} : ({main.outs[i]}) -> {t}"
        for i, t in zip(moving, types, strict=True)
    ]
    named = ", ".join(f"%r{i}" for i in moving)
    lines.append(f"func.return {named} : {', '.join(types)}" if types else "func.return")
    head = ", ".join(f"{a}: {t}" for a, t, _ in rows)
    body = "\n".join(lines)
    inner = [_private(p.text, {"main": called}) for p in parts]
    entry = f"func.func public @main({head}) -> ({', '.join(types)}) {{\n{body}\n}}"
    text = "\n".join(["module @jit_" + symbol_text(exported.fun_name) + " {", entry, *inner, "}"])
    if any(isinstance(n, Dim) for t in ins for n in t.shape):
        return text  # refined as a part of the module that calls it
    try:
        return refined_text(text)
    except Unreadable as error:
        raise ValueError(
            f"call of the exported {exported.fun_name} with arguments of types "
            f"{', '.join(t.str_short(True) for t in ins)}: its module rejects them: {error}"
        ) from None


CALL_EXPORTED = Op(
    "call_exported",
    type_rule=lambda op, *types, results, **params: results,
    eager=_eager,
    batch=_batch,
    lower=_lower,
    multiple=True,
    user_code=True,
    elements=Elements.KNOWN,
    is_expensive=True,
    needs_fusion=True,  # its module may have any instruction
)
