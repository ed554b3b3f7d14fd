"""Compiles modules for reports: for the devices here, or for many virtual ones.

A CPU client has at most 2,048 devices because of its numbering scheme: for more, the process has
several clients, each of which acts as a separate process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.runtime import threads, transports
from shardwise._src.runtime.compiler.modules import compile_options

PER_CLIENT = 2048  # devices
START = 60  # seconds in which all clients of a process have met
SIZES = ("argument", "output", "alias", "temp", "generated_code")


class Inspection(NamedTuple):
    """A compiled module.

    text: of the optimized program, for one device; sizes: bytes on one device by kind (`SIZES`).
    buffers: XLA's `BufferAssignmentProto`; module: its `HloModuleProto`.
    """

    text: str
    sizes: dict[str, int]
    buffers: bytes
    module: bytes


def inspected(raw: _jax.LoadedExecutable | _jax.Executable) -> Inspection:
    """The inspection of an executable."""
    stats = raw.get_compiled_memory_stats()
    sizes = {name: int(getattr(stats, f"{name}_size_in_bytes")) for name in SIZES}
    (module,) = raw.hlo_modules()
    return Inspection(
        module.to_string(), sizes, stats.serialized_buffer_assignment_proto or b"",
        module.as_serialized_hlo_module_proto(),
    )  # fmt: skip


def _clients(count: int) -> list[_jax.Client]:
    """Clients that together have `count` devices."""
    if count <= PER_CLIENT:
        return [xc.make_cpu_client(asynchronous=True, num_devices=count)]
    nodes = -(-count // PER_CLIENT)
    before = transports.listening_ports()
    service = _jax.get_distributed_runtime_service("127.0.0.1:0", nodes)
    (port,) = transports.listening_ports() - before
    address = f"127.0.0.1:{port}"

    def make(node: int) -> tuple[_jax.DistributedRuntimeClient, _jax.Client]:
        line = _jax.get_distributed_runtime_client(
            address, node, init_timeout=START, shutdown_on_destruction=False
        )
        line.connect()
        here = min(PER_CLIENT, count - node * PER_CLIENT)
        return line, xc.make_cpu_client(
            asynchronous=True, distributed_client=line, node_id=node, num_nodes=nodes,
            collectives=_jax.make_gloo_tcp_collectives(line), num_devices=here,
        )  # fmt: skip

    making = [threads.future_of(functools.partial(make, n), f"node-{n}") for n in range(nodes)]
    try:
        made = [future.result(START) for future in making]
    except TimeoutError:
        raise RuntimeError(
            f"{nodes} clients of virtual devices did not connect within {START} s"
        ) from None
    _kept.append(service)
    _kept.extend([line for line, _ in made])
    return [client for _, client in made]


# Objects that clients need for the lifetime of the process.
_kept: list[_jax.DistributedRuntimeService | _jax.DistributedRuntimeClient] = []


def inspected_of_virtual_devices(
    text: str, count: int, free_outputs: Sequence[bool], overrides: Sequence[tuple[str, Any]] = ()
) -> Inspection:
    """Compiles a module for `count` devices, in a process that has no others and only does this."""
    client = _clients(count)[0]
    devices = tuple(sorted(client.devices(), key=lambda d: d.id)[:count])
    options = compile_options(devices, free_outputs=free_outputs, overrides=dict(overrides))
    return inspected(client.compile_and_load(text, _jax.DeviceList(devices), options))
