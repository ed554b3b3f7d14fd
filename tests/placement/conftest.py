"""Fixtures: a mesh in scope."""

from collections.abc import Iterator

import pytest

from shardwise.sharding import Mesh, set_mesh
from tests.helpers.explicit import MESH


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    """A mesh of explicit axes, in scope."""
    with set_mesh(MESH):
        yield MESH
