"""The op `mosaic_call`: a kernel for TPUs, as the text of its module.

    results = mosaic_call(*operands, kernel=…)

Operands are dynamic sizes of the grid, prefetched arrays, and inputs. It is compiled as a custom
call that contains the module in serialized form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Program
from shardwise._src.kernels.launch_record import Launch, LoweringException
from shardwise._src.kernels.launch_work import launch_cost
from shardwise._src.kernels.on_tpu.mosaic_limits import check_limits, too_large
from shardwise._src.kernels.on_tpu.mosaic_module import MosaicKernel, mosaic_kernel
from shardwise._src.kernels.on_tpu.mosaic_text import sizes_in_memory, stored
from shardwise._src.lowering.text import quoted
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.ops.sharded.sharding_ops import drop_sharding
from shardwise._src.runtime.compiler.mosaic import InvalidKernel, serialized
from shardwise._src.runtime.platforms import Platform
from shardwise._src.runtime.target_machines import Target
from shardwise._src.targets.tpus import Tpu
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.values.convert import cast

TARGET = "tpu_custom_call"


def tpu_program(
    body: Program, maps: Any, launch: Launch, types: Sequence[ArrayType], platform: Platform
) -> Program:
    """The program of a launch on TPUs, for operands of these types.

    Raises NotImplementedError if the kernel cannot be compiled for TPUs.
    """
    check_limits(launch, types)
    kernel = mosaic_kernel(body, maps, launch, platform)
    static = {"body": body, "maps": tuple(maps), "launch": launch, "kernel": kernel}

    def run(*operands: Any) -> list[Any]:
        sizes, first, ins = launch.parts(operands)
        first = [_in_memory(x, "smem") for x in first]
        ins = [_in_memory(x, tile.space.name) for x, tile in zip(ins, launch.ins, strict=True)]
        places = [
            reshape(axis_index(names=names, sizes=sizes, varies=True), shape=(1,))
            for names, sizes in kernel.places
        ]
        found = mosaic_call(*sizes, *first, *places, *ins, **static)
        return [_as(x, tile.type) for x, tile in zip(found, launch.outs, strict=True)]

    return program_of(run, tuple(types), launch.name)


def _in_memory(x: Any, space: str) -> Any:
    return _as(drop_sharding(x), _type_in_memory(type_of(x), space))


def _type_in_memory(t: ArrayType, space: str) -> ArrayType:
    shape = sizes_in_memory(t.shape, space)
    return t.update(shape=shape, dtype=stored(t.dtype), spec=None, mesh=None)


def _as(x: Any, t: ArrayType) -> Any:
    """The array with the shape and dtype of a type."""
    x = cast(x, t.dtype)
    return x if type_of(x).shape == t.shape else reshape(x, shape=t.shape)


def _type(op: Op, *types: ArrayType, launch: Launch, **p: Any) -> tuple[ArrayType, ...]:
    return tuple([_type_in_memory(tile.type, tile.space.name) for tile in launch.outs])


def _lower(
    op: Op, e: Any, ins: Sequence[ArrayType], outs: Any, *xs: str, kernel: MosaicKernel,
    launch: Launch, **p: Any,
) -> list[str]:  # fmt: skip
    _check_devices(e, launch.name, kernel.axes)
    try:
        body = serialized(kernel.text)
    except InvalidKernel as error:
        raise LoweringException(
            f"kernel {launch.name}: its operations cannot be compiled for TPUs. Mosaic's "
            f"error: {error}"
        ) from None
    before = launch.dynamic + launch.prefetch + len(kernel.places)
    return e.custom_call(
        TARGET,
        xs,
        ins,
        outs,
        config=quoted(config_text(body, launch, kernel)),
        version=1,
        aliases={before + i: j for i, j in launch.aliases},
        effect=launch.params.is_retained or bool(kernel.axes),
        extra={"kernel_name": quoted(launch.name)},
    )


def _check_devices(e: Any, name: str, axes: tuple[Any, ...]) -> None:
    """Rejects copies between devices whose numbers in the program are not those in the mesh."""
    own = e.manual
    if not axes or (
        own is not None
        and tuple(own.names) == axes
        and own.manual >= {*own.names}
        and own.grid.ravel().tolist() == [*range(own.grid.size)]
    ):
        return
    raise LoweringException(
        f"kernel {name} copies to other devices along the mesh axes {axes}. "
        "On TPUs these must be all axes of the mesh, in order, and the mesh must have the order of "
        "the program's devices: use `shard_map` over all axes of a mesh of all devices."
    )


def _excess(op: Op, types: Sequence[ArrayType], p: dict[str, Any], target: Target) -> str:
    if not isinstance(target.kind, Tpu):
        return ""
    launch, scoped = p["launch"], p["kernel"].scoped
    return too_large(launch, scoped, launch.parts(types)[1], target.kind, target.name)


def _cost(op: Op, types: Sequence[ArrayType], p: dict[str, Any]) -> tuple[int, int, int]:
    """What its program says; what the user says is in the estimate of the compiler already."""
    return launch_cost(op, types, p) if p["launch"].cost is None else (0, 0, 0)


def config_text(body: bytes, launch: Launch, kernel: MosaicKernel) -> str:
    """The configuration of the custom call, as JSON."""
    params, cost = launch.params, launch.cost
    config: dict[str, Any] = {
        "body": base64.b64encode(body).decode(),
        "serialization_format": 1,
        "needs_layout_passes": True,
    }
    if kernel.axes:
        config["has_communication"] = True
    if "tpu.sem_barrier" in kernel.text:
        config["collective_id"] = params.collective_id
    if cost is not None:
        config["cost_estimate"] = {name: int(n) for name, n in vars(cost).items()}
    if params.allow_input_fusion is not None:
        config["allow_input_fusion"] = [bool(x) for x in params.allow_input_fusion]
    switches = "disable_bounds_checks", "skip_device_barrier"
    config |= {name: True for name in switches if getattr(params, name)}
    whole: dict[str, Any] = {"custom_call_config": config}
    if params.vmem_limit_bytes is not None:
        limit = {"memory_space": 1, "offset": 0, "size": int(params.vmem_limit_bytes)}
        whole["scoped_memory_configs"] = [limit]
    return json.dumps(whole)


mosaic_call = Op(
    "mosaic_call",
    type_rule=_type,
    lower=_lower,
    cost=_cost,
    excess=_excess,
    multiple=True,
    contains=Programs(("body", "maps")),
    is_expensive=True,
)
