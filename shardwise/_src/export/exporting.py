"""`export`: traces a jitted function for given arguments and exports it as a portable module."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwise._src.autodiff.grad import vjp
from shardwise._src.base.config import export_calling_convention_version
from shardwise._src.base.positions import put
from shardwise._src.control.expand import expanded
from shardwise._src.core.program import Program
from shardwise._src.effects.callback import host_functions
from shardwise._src.effects.ordering import ORDERED
from shardwise._src.export.calling import Exported
from shardwise._src.export.export_module import exported_text
from shardwise._src.export.exported_data import Shardings
from shardwise._src.export.symbolic_dims import Dim
from shardwise._src.export.symbolic_lowering import is_symbolic
from shardwise._src.export.versions import (
    WHERE,
    DisabledSafetyCheck,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from shardwise._src.jit.jit import Jitted, jit
from shardwise._src.jit.stages import Traced, used_arguments, without_others
from shardwise._src.lax.platform_dependent import EXPORTED
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.lowering.module import hoisted_constants
from shardwise._src.messages.formatting import join
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.running.program_placement import check_committed, places_for
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler.portable import portable_artifact
from shardwise._src.runtime.platforms import known, named, platform_of
from shardwise._src.runtime.pytree import flatten, flatten_with_path
from shardwise._src.runtime.target_machines import is_compile_only
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import float0, is_inexact
from shardwise._src.types.sharding import NamedSharding, SingleDeviceSharding


def default_export_platform() -> str:
    """The platform of the default devices, as named by `export`."""
    return platform_of(backend.devices()[0]).name


def export(
    fun_jit: Jitted[..., Any],
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
    _override_lowering_rules: Any = None,
) -> Callable[..., Exported]:
    """Exports a jitted function for given arguments: `export(jit(f))(*args, **kwargs)`.

    Args:
      fun_jit: a function returned by `jit`, or one that the library compiles, such as `numpy.sin`.
      platforms: "cpu", "cuda", "rocm" or "tpu", one or several; by default the platform of the
        machine that arguments are for (`shardwise.targets.devices`), or of the default devices.
        Other platforms do not need to be present.
      disabled_checks: see `DisabledSafetyCheck`.
      _override_lowering_rules: must be None; JAX's rules require MLIR's Python bindings.

    Returns:
      A function of arrays, or of `ShapeDtypeStruct`s, whose sizes may be symbolic
      (`symbolic_shape`). It returns an `Exported` for arguments of their types and shardings. A
      program over several devices stores its shardings as mesh axis names, and runs on the same
      number of devices elsewhere. Donation is not exported.

    Raises:
      ValueError: for a function that is not jitted, or for unknown platforms.
      NotImplementedError: for programs that call host functions, and for symbolic sizes where a
        program needs concrete numbers, or over several devices.
    """
    is_jitted = isinstance(fun_jit, Jitted)
    if not is_jitted and hasattr(fun_jit, "fused"):  # of the library, such as `numpy.sin`
        fun_jit, is_jitted = jit(fun_jit), True
    if not is_jitted:
        raise ValueError(
            f"{WHERE}.export takes a function returned by `shardwise.jit`; got {fun_jit!r}."
        )
    if _override_lowering_rules is not None:
        raise NotImplementedError(
            f"{WHERE}.export: _override_lowering_rules must be None; got "
            f"{_override_lowering_rules!r}. Register a lowering for your own primitive with "
            "`shardwise.interpreters.mlir.register_lowering`."
        )
    chosen = _checked(platforms)

    @hides_frames
    def exporting(*args: Any, **kwargs: Any) -> Exported:
        """Exports the function for these arguments."""
        there = chosen or (_platform_for(args, kwargs),)
        _check_scopes(args, kwargs)
        with EXPORTED(there):
            traced = fun_jit.trace(*args, **kwargs)
        if traced.layers:
            raise ValueError(
                f"{WHERE}.export: {traced.fun_name} uses refs, which exist in this process only: "
                "pass and return their values."
            )
        return _of_traced(traced, there, tuple(disabled_checks))

    return exporting


def _platform_for(args: Any, kwargs: Any) -> str:
    """The platform of the machine that arguments are for, if it is only described; else that of
    the default devices."""
    for leaf in flatten((args, kwargs))[0]:
        sharding: Any = getattr(leaf, "sharding", None)
        if sharding is not None and is_compile_only(sharding.devices):
            return platform_of(sharding.devices[0]).name
    return default_export_platform()


def _check_scopes(args: Any, kwargs: Any) -> None:
    """Raises if symbolic sizes of arguments have different scopes."""
    first: tuple[str, Dim] | None = None
    for path, leaf in flatten_with_path((args, kwargs))[0]:
        for n in getattr(leaf, "shape", ()):
            if not isinstance(n, Dim):
                continue
            name = ("args", "kwargs")[path[0].idx] + "".join(map(str, path[1:]))
            first = first or (name, n)
            if n.scope is not first[1].scope:
                raise ValueError(
                    f"{WHERE}.export: the symbolic dimensions {first[1]} of {first[0]} and {n} of "
                    f"{name} have different scopes. Create them with one call of `symbolic_shape` "
                    "or `symbolic_args_specs`, or pass `scope`."
                )


def _checked(platforms: Sequence[str] | None) -> tuple[str, ...] | None:
    if platforms is None:
        return None
    given = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    names = [platform.name for platform in known()]
    unknown = [p for p in given if p not in names]
    if unknown or not given or len({*given}) < len(given):
        raise ValueError(
            f"{WHERE}.export: platforms must be among {join(names)}, without duplicates; got "
            f"{given}."
        )
    return given


def _of_traced(
    traced: Traced, platforms: tuple[str, ...], checks: tuple[DisabledSafetyCheck, ...]
) -> Exported:
    program, sigs = traced.program, traced.sigs
    ins = traced.in_shardings or [None] * len(sigs)
    outs = traced.out_shardings or [None] * len(program.outvars)
    for platform in platforms:
        on_platform = expanded(program, named(platform))
        if host_functions(on_platform) or ORDERED in on_platform.effects:
            raise NotImplementedError(
                f"{WHERE}.export: {program.name} calls host functions (a callback, or "
                "`shardwise.debug.print`), which exist in this process only. Export it without "
                "them."
            )
    check_committed(program, sigs, traced.names, ins)
    held = hoisted_constants(program)
    places = places_for(program, sigs, traced.names, ins, outs, held)
    stated = [
        s if w is not None or sig.committed else None
        for s, w, sig in zip(places.arguments, map(bare, ins), sigs, strict=True)
    ]
    several = len(places.devices) > 1
    in_shardings = tuple(
        [_abstract(s, name, several) for s, name in zip(stated, traced.names, strict=True)]
    )
    out_shardings = tuple(
        [
            _abstract(s, path_in("the result", traced.out_tree, i), several)
            for i, s in enumerate(places.results)
        ]
    )
    count = range(len(program.outvars))
    whole = Whole(program, tuple(range(len(sigs))), tuple(count), places.devices)
    trees, types = (traced.in_tree, traced.out_tree), (program.in_types, program.out_types)
    shardings = in_shardings, out_shardings
    return exported(whole, trees, types, shardings, traced.kept, platforms, checks)


class Whole(NamedTuple):
    """A program, with the indices of its arguments and results in an `Exported`, which also has
    values of dtype float0; the program has none."""

    program: Program
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    devices: tuple[Any, ...]


def exported(
    whole: Whole,
    trees: tuple[Any, Any],
    types: tuple[Sequence[ArrayType], Sequence[ArrayType]],
    shardings: tuple[Shardings, Shardings],
    kept: Sequence[int],
    platforms: tuple[str, ...],
    checks: tuple[DisabledSafetyCheck, ...],
) -> Exported:
    """A program as an `Exported`. kept: indices of the arguments that its module takes."""
    program, devices = whole.program, whole.devices
    for what, row, places in zip(("argument", "result"), types, shardings, strict=True):
        _check_even(program, row, places, what)
    used, symbolic = program, is_symbolic(*program.in_types)
    if symbolic:  # keeps all: sizes come from them
        kept = range(len(program.in_types))
    if len(kept) < len(program.in_types):
        used = without_others(program, tuple(kept))
    numbers = tuple([whole.ins[i] for i in kept])
    ins, outs = shardings
    text = exported_text(used, devices, [ins[i] for i in numbers], outs, platforms, types[1])
    _check_kernels(program, text, checks)
    return Exported(
        fun_name=program.name, in_tree=trees[0], in_avals=tuple(types[0]), out_tree=trees[1],
        out_avals=tuple(types[1]), _in_named_shardings=ins, _out_named_shardings=outs,
        nr_devices=len(devices), platforms=platforms, disabled_safety_checks=checks,
        mlir_module_serialized=portable_artifact(text),
        calling_convention_version=_version(len(devices)),
        module_kept_var_idx=numbers,
        uses_global_constants=len(platforms) > 1 or symbolic,
        _text=text, _get_vjp=lambda this: _vjp_of(this, whole),
    )  # fmt: skip


def _version(devices: int) -> int:
    """The calling-convention version of a module: 9 has no shardings in the form of Shardy."""
    version, high = (
        export_calling_convention_version.value,
        maximum_supported_calling_convention_version,
    )
    low = minimum_supported_calling_convention_version if devices == 1 else high
    if not low <= version <= high:
        allowed = f"version {high}" if low == high else f"versions {low} to {high}"
        raise ValueError(
            f"export_calling_convention_version is {version}; modules over {devices} "
            f"device{'s' * (devices > 1)} have {allowed}."
        )
    return version


_KERNEL = re.compile(r'custom_call @("[^"]*"|[\w$.]+)')
# Custom-call targets of other releases, too: LAPACK's, and targets built into XLA.
_STABLE = re.compile(
    r"lapack_\w+_ffi|cu(solver|sparse)_\w+_ffi|cu_\w+|annotate_device_placement|Sharding|"
    r"SPMDFullToShardShape|SPMDShardToFullShape|AllocateBuffer|shape_assertion|cuhybrid_\w+|"
    r"Qr|ProductOfElementaryHouseholderReflectors|LuDecomposition|Eigh|tpu_custom_call"
)


def _check_kernels(program: Program, text: str, checks: Sequence[DisabledSafetyCheck]) -> None:
    """Raises if a program calls custom-call targets that only this library may have."""
    allowed = {c.is_custom_call() for c in checks}
    own = [
        k
        for k in dict.fromkeys(k.strip('"') for k in _KERNEL.findall(text))
        if not _STABLE.fullmatch(k) and k not in allowed
    ]
    if own and "ALL" not in allowed:
        raise ValueError(
            f"{WHERE}.export: {program.name} calls kernels that other releases may not have: "
            f"{join(own)}. Allow them with disabled_checks="
            f"[{', '.join(f'DisabledSafetyCheck.custom_call({k!r})' for k in own)}]."
        )


def _abstract(sharding: Any, what: str, several: bool) -> NamedSharding | None:
    """A sharding over its abstract mesh."""
    if sharding is None or not several or isinstance(sharding, SingleDeviceSharding):
        return None
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            f"{WHERE}.export: the sharding of {what} is {sharding}, which has no mesh axis "
            "names. Place it with a NamedSharding."
        )
    mesh = sharding.mesh.abstract_mesh
    return NamedSharding(mesh, sharding.spec, sharding._memory_kind)


def _check_even(
    program: Program, types: Sequence[ArrayType], shardings: Shardings, what: str
) -> None:
    for i, (t, s) in enumerate(zip(types, shardings, strict=True)):
        if s is not None and not s.is_even(t.shape):
            raise ValueError(
                f"{WHERE}.export: {what} {i} of {program.name}, of type {t.str_short(True)}, is "
                f"sharded unevenly by {s}: exported programs support shards of equal size only. "
                "Choose mesh axes whose sizes divide it, or replicate it."
            )


def _vjp_of(this: Exported, whole: Whole) -> Exported:
    """The exported vjp of the arguments and a cotangent for each result; float0 ones are unused."""
    program, count = whole.program, len(whole.ins)
    moving = [i for i, t in enumerate(program.in_types) if is_inexact(t.dtype)]
    active = [i for i, t in enumerate(program.out_types) if is_inexact(t.dtype)]

    def flat(*values: Any) -> list[Any]:
        def smooth(*moved: Any) -> list[Any]:
            outs = program(*put(values[:count], moving, moved))
            return [outs[i] for i in active]

        return list(vjp(smooth, *[values[i] for i in moving])[1]([*values[count:]]))

    cts = [program.out_types[i].strong() for i in active]
    found = program_of(flat, [*program.in_types, *cts], f"vjp_of_{program.name}", "export")
    before = len(this.in_avals)
    ins = (*whole.ins, *[before + whole.outs[i] for i in active])
    outs = tuple([whole.ins[i] for i in moving])
    in_types = [*this.in_avals, *map(_tangent, this.out_avals)]
    out_types = list(map(_tangent, this.in_avals))
    trees = flatten((tuple(in_types), {}))[1], flatten(tuple(out_types))[1]
    places = this._in_named_shardings
    shardings = places + this._out_named_shardings, places
    new, kept = Whole(found, ins, outs, whole.devices), used_arguments(found)
    types, checks = (in_types, out_types), this.disabled_safety_checks
    return exported(new, trees, types, shardings, kept, this.platforms, checks)


def _tangent(t: ArrayType) -> ArrayType:
    return t.strong() if is_inexact(t.dtype) else array_type(t.shape, float0)
