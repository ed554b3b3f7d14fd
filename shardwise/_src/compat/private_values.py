"""Stand-ins for private values of JAX."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.ops.elementwise import stop_gradient as stop_gradient_p
from shardwise._src.placement.device_put import process_count, process_index
from shardwise._src.runtime import backend, processes
from shardwise._src.tree.registration import is_tree_node
from shardwise._src.types.extended import extended
from shardwise._src.types.mesh import Mesh

__all__ = ["stop_gradient_p"]

F = TypeVar("F", bound=Callable[..., Any])
_exclude_paths: list[str] = []  # of traceback_util: which library frames are hidden


def register_exclusion(path: str) -> None:
    """Hides a file's frames in tracebacks."""
    _exclude_paths.append(path)


def include_frame(frame: Any) -> bool:
    return not any(frame.f_code.co_filename.startswith(path) for path in _exclude_paths)


def api_boundary(fun: F, **_: Any) -> F:
    """Returns the function unchanged: the library's errors hide their own frames."""
    return fun


class ExtendedDType:
    """The base class of dtypes that libraries define. Arrays cannot have such dtypes."""

    type: Any = extended


class _Registry:
    """Of `jax._src.tree_util`: the classes that are pytree nodes."""

    def __contains__(self, kind: type) -> bool:
        return is_tree_node(kind)


_registry = _Registry()


class _GlobalState:
    """Of `jax._src.distributed`."""

    @property
    def process_id(self) -> int:
        return process_index()

    @property
    def num_processes(self) -> int:
        return process_count()

    @property
    def client(self) -> Any:
        """XLA's client of the coordination service; None in a single-process program."""
        link = processes.link()
        return None if link is None else link.client


global_state = _GlobalState()


class _Environment:
    """Of `jax._src.mesh.thread_resources`."""

    @property
    def physical_mesh(self) -> Mesh:
        """The mesh in scope; an empty mesh if absent."""
        mesh = current().mesh
        return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), object), ())


thread_resources = SimpleNamespace(env=_Environment())


def __getattr__(name: str) -> Any:
    if name == "_backends":  # of xla_bridge: the initialized backends
        return backend.started()
    raise AttributeError(name)


def trace_state_clean() -> bool:
    """Whether no transformation is active."""
    return current().interpreter.eager
