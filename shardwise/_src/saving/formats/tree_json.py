"""Pytree structures as JSON, in JAX's format; and a future that has the types of a pytree."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from shardwise._src.export import tree_records
from shardwise._src.export.export_files import TREE
from shardwise._src.export.tables import Damaged, read, write
from shardwise._src.runtime.pytree import PyTreeDef

REPR, LEAF_IDS = "__jax_pytreedef_repr", "__jax_leaf_ids"


def serialize_pytreedef(node: PyTreeDef) -> dict[str, Any]:
    """The structure of a pytree as a JSON-serializable dict, with a number for each leaf.

    Raises:
      ValueError: it has custom containers that are not registered with
        `register_pytree_node_serialization`.
      TypeError: it has a dict whose keys are not strings.
    """
    data = write(TREE, tree_records.written(node))
    return {REPR: base64.b64encode(data).decode(), LEAF_IDS: list(range(node.num_leaves))}


def deserialize_pytreedef(pytreedef_repr: dict[str, Any]) -> PyTreeDef:
    """The structure from a dict that `serialize_pytreedef` or JAX wrote.

    Raises:
      ValueError: the dict is malformed, or has containers that are not registered here.
    """
    try:
        fields = read(TREE, base64.b64decode(pytreedef_repr[REPR], validate=True))
        return tree_records.read(fields, len(pytreedef_repr[LEAF_IDS]), "tree")
    except (KeyError, ValueError, Damaged) as error:
        raise ValueError(
            f"deserialize_pytreedef: this is not a serialized PyTreeDef: {error}."
        ) from (
            None
        )


class PyTreeFuture(Future[Any]):
    """A pending result, which can be awaited. pytree: the types of the result."""

    def __init__(self, future: Future[Any], pytree: Any = None):
        super().__init__()
        self._future, self.pytree = future, pytree

    def done(self) -> bool:
        """Whether the result is ready."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """The result, or its error, once it is ready."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error of the result; None if it succeeded."""
        return self._future.exception(timeout)

    def __await__(self) -> Generator[None, None, Any]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        return f"PyTreeFuture(done={self.done()}, pytree={self.pytree})"
