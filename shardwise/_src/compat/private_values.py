"""Values that only stand in for private ones of JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from shardwise._src.api.placement import process_count, process_index
from shardwise._src.base.context import current
from shardwise._src.ops.elementwise import stop_gradient as stop_gradient_p
from shardwise._src.runtime import backend, processes
from shardwise._src.tree.registration import is_tree_node
from shardwise._src.types.extended import extended
from shardwise._src.types.mesh import Mesh

__all__ = ["stop_gradient_p"]

F = TypeVar("F", bound=Callable[..., Any])
_exclude_paths: list[str] = []  # of traceback_util: which frames of libraries are hidden


def register_exclusion(path: str) -> None:
    """Says that a file's frames are of no interest in tracebacks."""
    _exclude_paths.append(path)


def include_frame(frame: Any) -> bool:
    return not any(frame.f_code.co_filename.startswith(path) for path in _exclude_paths)


def api_boundary(fun: F, **_: Any) -> F:
    """The function: errors of the library hide its frames themselves."""
    return fun


class ExtendedDType:
    """The base of dtypes that libraries define. Arrays cannot have these."""

    type: Any = extended


class _Registry:
    """Of `jax._src.tree_util`: which classes are nodes of trees."""

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
        """XLA's client of the coordination service; None in a program of one process."""
        link = processes.link()
        return None if link is None else link.client


global_state = _GlobalState()


class _Environment:
    """Of `jax._src.mesh.thread_resources`."""

    @property
    def physical_mesh(self) -> Mesh:
        """The mesh in scope; without devices where there is none."""
        mesh = current().mesh
        return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), object), ())


class _ThreadResources:
    env = _Environment()


thread_resources = _ThreadResources()


def __getattr__(name: str) -> Any:
    if name == "_backends":  # of xla_bridge: those that are started
        return backend.started()
    raise AttributeError(name)


def trace_state_clean() -> bool:
    """Whether no transform is at work."""
    return current().interpreter.eager
