"""The op `mosaic_call`: a kernel for TPUs, as the text of its module.

    results = mosaic_call(*operands, kernel=…)

Operands are dynamic sizes of the grid, prefetched arrays, and inputs. It is compiled as a custom
call that contains the module in serialized form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_limits import check_limits, too_large
from shardwise._src.kernels.on_tpu.mosaic_module import module_text, sizes_in_memory
from shardwise._src.kernels.on_tpu.mosaic_text import escaped, stored
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.sharded.sharding_ops import drop_sharding
from shardwise._src.runtime.compiler.mosaic import InvalidKernel, serialized
from shardwise._src.runtime.platforms import Platform
from shardwise._src.runtime.target_machines import Target
from shardwise._src.targets.tpus import Tpu
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.values.convert import cast

TARGET = "tpu_custom_call"


@dataclass(frozen=True)
class MosaicKernel:
    """A kernel: its launch, the text of its module, and the types of its results."""

    launch: Launch
    text: str
    outs: tuple[ArrayType, ...]

    def __repr__(self) -> str:
        return self.launch.name


def tpu_program(
    body: Program, maps: Any, launch: Launch, types: Sequence[ArrayType], platform: Platform
) -> Program:
    """The program of a launch on TPUs, for operands of these types.

    Raises NotImplementedError if the kernel cannot be compiled for TPUs.
    """
    check_limits(launch, types)
    text = module_text(body, maps, launch, platform)
    spaces = ["smem"] * launch.prefetch + [t.space.name for t in launch.ins]
    wide = [_in_memory(t.type, t.space.name) for t in launch.outs]
    kernel = MosaicKernel(launch, text, tuple(wide))

    def run(*operands: Any) -> list[Any]:
        sizes, rest = operands[: launch.dynamic], operands[launch.dynamic :]
        given = [
            _as(drop_sharding(x), _in_memory(type_of(x), space))
            for x, space in zip(rest, spaces, strict=True)
        ]
        found = mosaic_call(*sizes, *given, kernel=kernel)
        return [_as(x, tile.type) for x, tile in zip(found, launch.outs, strict=True)]

    return program_of(run, tuple(types), launch.name)


def _in_memory(t: ArrayType, space: str) -> ArrayType:
    return t.update(
        shape=sizes_in_memory(t.shape, space), dtype=stored(t.dtype), spec=None, mesh=None
    )


def _as(x: Any, t: ArrayType) -> Any:
    """The array with the shape and dtype of a type."""
    x = cast(x, t.dtype)
    return x if type_of(x).shape == t.shape else reshape(x, shape=t.shape)


def _type(op: Op, *types: ArrayType, kernel: MosaicKernel) -> tuple[ArrayType, ...]:
    return kernel.outs


def _lower(
    op: Op, e: Any, ins: Sequence[ArrayType], outs: Any, *xs: str, kernel: MosaicKernel
) -> list[str]:
    launch = kernel.launch
    try:
        body = serialized(kernel.text)
    except InvalidKernel as error:
        raise NotImplementedError(
            f"kernel {launch.name}: its operations cannot be compiled for TPUs: Mosaic, their "
            f"compiler of kernels, says {error}"
        ) from None
    before = launch.dynamic + launch.prefetch
    return e.custom_call(
        TARGET,
        xs,
        ins,
        outs,
        config=f'"{escaped(config_text(body, launch))}"',
        version=1,
        aliases={before + i: j for i, j in launch.aliases},
        effect=bool(launch.params.has_side_effects),
        extra={"kernel_name": f'"{escaped(launch.name)}"'},
    )


def _excess(op: Op, types: Sequence[ArrayType], p: dict[str, Any], target: Target) -> str:
    if not isinstance(target.kind, Tpu):
        return ""
    launch = p["kernel"].launch
    return too_large(launch, launch.parts(types)[1], target.kind, target.name)


def config_text(body: bytes, launch: Launch) -> str:
    """The configuration of the custom call, as JSON."""
    params, cost = launch.params, launch.cost
    config: dict[str, Any] = {
        "body": base64.b64encode(body).decode(),
        "serialization_format": 1,
        "needs_layout_passes": True,
    }
    if params.collective_id is not None:
        config |= {"has_communication": True, "collective_id": params.collective_id}
    if cost is not None:
        config["cost_estimate"] = {
            "flops": int(cost.flops),
            "transcendentals": int(cost.transcendentals),
            "bytes_accessed": int(cost.bytes_accessed),
            "remote_bytes_transferred": 0,
        }
    if params.allow_input_fusion is not None:
        config["allow_input_fusion"] = [bool(x) for x in params.allow_input_fusion]
    for name in ("disable_bounds_checks", "skip_device_barrier"):
        if getattr(params, name):
            config[name] = True
    whole: dict[str, Any] = {"custom_call_config": config}
    if params.vmem_limit_bytes is not None:
        limit = {"memory_space": 1, "offset": 0, "size": int(params.vmem_limit_bytes)}
        whole["scoped_memory_configs"] = [limit]
    return json.dumps(whole)


mosaic_call = Op(
    "mosaic_call", type_rule=_type, lower=_lower, excess=_excess, multiple=True, is_expensive=True
)
