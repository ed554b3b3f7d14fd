"""Compiled programs as bytes, for another process with equal hardware and devices.

    data, in_tree, out_tree = serialize(jit(f).lower(x).compile())
    compiled = deserialize_and_load(data, in_tree, out_tree)

The bytes contain the machine code and everything a call needs: types, shardings and layouts. They
begin with a checksum, and record the jaxlib version and processor; on others they are rejected. A
program for a machine that is only described is loaded on the machine itself, with the same jaxlib,
plugin and kind of device; its devices are those with the same numbers. A deserialized program has
no equations: it runs, but has no `jaxpr`. The code in the bytes is executed unchecked: do not load
bytes that you do not trust.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.pickles import reduced
from shardwise._src.core.program import Program, Var
from shardwise._src.jit.compiled import Compiled
from shardwise._src.jit.stages import Traced
from shardwise._src.lowering.layouts_and_memory import place_in
from shardwise._src.messages.formatting import short_repr
from shardwise._src.running.executable import Executable
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler.fingerprint import fingerprint
from shardwise._src.runtime.compiler.modules import compile_options, load
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.target_machines import is_compile_only
from shardwise._src.types.array_type import ArrayType, array_type

_HEAD = b"shardwise executable 1\n"
_SUM = 32  # bytes of a SHA-256


def serialize(compiled: Compiled) -> tuple[bytes, Any, Any]:
    """A compiled program as bytes.

    Args:
      compiled: the result of `jit(f).lower(...).compile()`.

    Returns:
      the bytes, and the pytrees of the arguments and of the results, for `deserialize_and_load`.

    Raises:
      ValueError: for programs that contain arrays, call host functions, or span processes.
    """
    if not isinstance(compiled, Compiled):
        raise TypeError(
            "serialize takes a compiled program, the result of `jit(f).lower(...).compile()`; got "
            f"{short_repr(compiled)}."
        )
    exe, traced = compiled.executable, compiled.traced
    name = traced.program.name
    for found, what, advice in (
        (exe.hidden, "captures arrays from outside", "Pass them as arguments."),
        (exe.module.calls, "calls host functions", "They exist in this process only."),
        (
            traced.layers,
            "uses refs",
            "They exist in this process only: pass and return their values.",
        ),
        (exe.module.span, "spans several processes", "Compile it in each."),
    ):
        if found:
            raise ValueError(f"serialize: the program of {name} {what}. {advice}")
    devices = exe.module.devices
    content = _pickled(
        {
            "name": name,
            "names": list(traced.names),
            "sigs": [_sig_fields(s) for s in traced.sigs],
            "kept": traced.kept,
            "donated": (traced.donated, exe.donated, exe.unfit),
            "overrides": traced.overrides,
            "ins": (list(exe.in_shardings), list(exe.in_layouts)),
            "out_sigs": [_sig_fields(s) for s in exe.out_sigs],
            "out_types": [_type_fields(t) for t in traced.program.out_types],
            "text": exe.text,
            "platform": platform_of(devices[0]).name,
            "devices": [d.id for d in devices],
            "made_by": _made_by(devices),
            "collectives": exe.module.has_collectives,
            "code": exe.module.serialize(),
        }
    )
    return _HEAD + _sum_of(content) + content, traced.in_tree, traced.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: Any,
    out_tree: Any,
    backend: Any = None,
    execution_devices: Sequence[Any] | None = None,
) -> Compiled:
    """The compiled program that `serialize` wrote.

    Args:
      serialized, in_tree, out_tree: the results of `serialize`.
      backend: the platform, by its name or its client; by default the one it was compiled for.
      execution_devices: the devices, by default those with the same numbers; others are rejected.

    Raises:
      TypeError: if `serialized` is not bytes.
      ValueError: for bytes that are truncated, altered or unrelated, or from another jaxlib or
        processor, and for devices that it was not compiled for.
    """
    fields = _read(serialized)
    devices = _devices(fields, backend, execution_devices)
    if fields["made_by"] != _made_by(devices):
        raise ValueError(
            f"deserialize_and_load: {fields['name']} was compiled by another jaxlib, or for "
            "another kind of processor or device. Compile it here."
        )
    options = compile_options(devices, overrides=dict(fields["overrides"]))
    client = devices[0].client
    module = load(client, fields["code"], devices, options, fields["collectives"])
    sigs = [_sig(*row) for row in fields["sigs"]]
    out_sigs = [_sig(*row) for row in fields["out_sigs"]]
    kept, (donated, given_up, unfit) = fields["kept"], fields["donated"]
    ins = [Var(s.type) for s in sigs]
    outs = [Var(array_type(*row)) for row in fields["out_types"]]
    program = Program(ins, outs, (), name=fields["name"])
    traced = Traced(
        program,
        sigs,
        fields["names"],
        in_tree,
        out_tree,
        None,
        None,
        donated,
        fields["overrides"],
        kept,
    )
    shardings, layouts = fields["ins"]
    rows = zip(layouts, traced.pick(sigs), shardings, strict=True)
    targets = [place_in(*row) for row in rows]
    one_array = out_tree.num_nodes == 1 and out_tree.num_leaves == 1
    return Compiled(
        traced,
        Executable(
            module=module,
            program=program.replace(inputs=traced.pick(ins)),
            text=fields["text"],
            names=traced.pick(fields["names"]),
            in_shardings=shardings,
            in_layouts=layouts,
            moves=tuple((i, place) for i, place in enumerate(targets) if place is not None),
            hidden=[],
            donated=given_up,
            unfit=unfit,
            out_sigs=out_sigs,
            handlers=[s.handler for s in out_sigs],
            out_tree=None if one_array else out_tree,
            eager=False,
        ),
    )


def _read(serialized: bytes) -> dict[str, Any]:
    if not isinstance(serialized, bytes):
        raise TypeError(
            f"deserialize_and_load takes bytes; got {short_repr(serialized)}. Pass the "
            "first result of shardwise.experimental.serialize_executable.serialize."
        )
    start = len(_HEAD) + _SUM
    content = serialized[start:]
    if not serialized.startswith(_HEAD) or serialized[len(_HEAD) : start] != _sum_of(content):
        raise ValueError(
            "deserialize_and_load takes the bytes that shardwise.experimental."
            f"serialize_executable.serialize returned; these {len(serialized)} are truncated, "
            "corrupted or something else."
        )
    return pickle.loads(content)


def _devices(fields: dict[str, Any], platform: Any, asked: Sequence[Any] | None) -> tuple:
    """The devices that it was compiled for."""
    if platform is None or isinstance(platform, str):
        client = backend.client(platform or fields["platform"])
    else:
        client = platform
    known = {d.id: d for d in client.devices()}
    wanted = fields["devices"]
    here = [d.id for d in asked] if asked is not None else [i for i in known if i in wanted]
    right = here == wanted if asked is not None else set(here) == set(wanted)
    platform_here = platform_of(client.devices()[0])
    if not right or fields["platform"] not in platform_here.names:
        raise ValueError(
            f"deserialize_and_load: {fields['name']} was compiled for devices {wanted} of platform "
            f"{fields['platform']!r}; available are {here if asked is not None else [*known]} of "
            f"{platform_here.name!r}. Compile it for these."
        )
    return tuple([known[i] for i in wanted])


def _made_by(devices: tuple) -> list[bytes]:
    """The jaxlib and the machine; without options, which are compiled into the code."""
    platform = platform_of(devices[0])
    if (compiler := platform.compiler_version) is not None and not platform.is_xla_cpu:
        kinds = sorted({d.device_kind for d in devices})
        return [f"{backend.JAXLIB_VERSION} {platform.name} {compiler()} {kinds}".encode()]
    return list(fingerprint(devices, compile_options(devices)))[:3]


class _Pickler(pickle.Pickler):
    """Pickles devices that are only described as those of the machine itself."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, backend.Device) and is_compile_only((obj,)):
            return reduced("device", platform_of(obj).name, obj.id)
        return NotImplemented


def _pickled(content: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(content)
    return file.getvalue()


def _sum_of(content: bytes) -> bytes:
    from hashlib import sha256

    return sha256(content).digest()


def _type_fields(t: ArrayType) -> tuple[Any, ...]:
    return t.shape, t.dtype, t.weak_type, t.spec, t.mesh


def _sig_fields(s: Signature) -> tuple[Any, ...]:
    return _type_fields(s.type), s.sharding, s.committed, s.layout


def _sig(t: tuple[Any, ...], sharding: Any, committed: bool, layout: Any) -> Signature:
    return signature(array_type(*t), sharding, committed, layout)
