"""The op `triton_call`: a launch that XLA compiles for a GPU, from a module in Triton's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Program
from shardwise._src.kernels.independent_axes import independent_axes
from shardwise._src.kernels.launch_record import Launch, derivatives_named, result_types
from shardwise._src.kernels.launch_work import launch_cost
from shardwise._src.kernels.on_gpu.triton_launch import TritonKernel, triton_kernel
from shardwise._src.ops.sharded.sharding_ops import drop_sharding
from shardwise._src.runtime.compiler.triton_modules import serialized
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType

TARGET = "__gpu$xla.gpu.triton"


def _lower(
    op: Op, e: Any, ins: Sequence[ArrayType], outs: Sequence[ArrayType], *xs: str, launch: Launch,
    aliases: tuple[tuple[int, int], ...], **p: Any,
) -> list[str]:  # fmt: skip
    with derivatives_named(launch, e.platform):
        kernel = triton_kernel(p["body"], p["maps"], launch, p["parallel"], ins, e.platform)
    return e.custom_call(
        TARGET, xs, ins, outs, config='""', version=1, aliases=dict(aliases),
        extra={"mhlo.backend_config": _config(kernel)}, effect=launch.params.is_retained,
    )  # fmt: skip


def _config(kernel: TritonKernel) -> str:
    code = "".join([f"\\{byte:02X}" for byte in serialized(kernel.text)])
    x, y, z = kernel.grid
    return (
        f'{{name = "{kernel.name}", ir = "{code}", num_stages = {kernel.num_stages} : i32, '
        f"num_warps = {kernel.num_warps} : i32, grid_x = {x} : i32, grid_y = {y} : i32, "
        f"grid_z = {z} : i32, debug = false}}"
    )


triton_call = Op(
    "triton_call",
    type_rule=result_types,
    lower=_lower,
    cost=launch_cost,
    multiple=True,
    contains=Programs(("body", "maps")),
    is_expensive=True,
)


def gpu_program(body: Program, maps: Any, launch: Launch, types: Sequence[ArrayType]) -> Program:
    """The program of a launch on GPUs.

    Raises:
      NotImplementedError: if the grid has sizes that are operands.
    """
    if launch.dynamic:
        raise NotImplementedError(
            f"kernel {launch.name}: its grid has a size that is traced. GPUs are launched with "
            "fixed sizes: launch the largest grid, pass the size as a prefetched argument, and "
            "skip the programs beyond it with `when`."
        )
    copied, aliases = [], []
    for i, j in launch.aliases:
        own = launch.prefetch + i
        if _is_read(body, launch, i):  # the values from before, which the result replaces
            copied.append(own)
            own = len(types) + len(copied) - 1
        aliases.append((own, j))
    static = {"body": body, "maps": maps, "launch": launch, "aliases": tuple(aliases)}
    static["parallel"] = independent_axes(launch, body, maps)

    def run(*operands: Any) -> list[Any]:
        values = [*map(drop_sharding, operands)]
        return triton_call(*values, *[values[i] for i in copied], **static)

    return program_of(run, tuple(types), launch.name)


def _is_read(body: Program, launch: Launch, i: int) -> bool:
    v = body.invars[len(launch.grid) + launch.prefetch + i]
    return any(v in eqn.invars for eqn in body.eqns)
