"""Kernels as modules for TPUs, on machines without a compiler for them."""

import re
from typing import Any, NamedTuple

import shardwise as sw
from shardwise._src.control.expand import expanded
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_call import mosaic_call
from shardwise._src.kernels.on_tpu.mosaic_module import MosaicKernel
from shardwise._src.runtime.platforms import TPU


class Found(NamedTuple):
    """The parameters of a kernel's call."""

    body: Any
    maps: Any
    launch: Launch
    kernel: MosaicKernel


def kernels_in(f, *args):
    """The kernels that a function's program has on TPUs."""
    program = expanded(sw.make_jaxpr(f)(*args), TPU)
    return [Found(**eqn.params) for eqn in walk(program) if eqn.op is mosaic_call]


def text_of(f, *args):
    """The module of a function's only kernel, without source lines."""
    (kernel,) = kernels_in(f, *args)
    return re.sub(r' loc\("[^"]*":\d+:\d+\)', "", kernel.kernel.text)
