"""Helpers for tests: op and gradient checks, simulated meshes, sharding assertions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.core.checker import ProgramError as ProgramError
    from shardwise._src.core.checker import check_program as check_program
    from shardwise._src.testing.check_op import check_op as check_op
    from shardwise._src.testing.grads import check_grads as check_grads
    from shardwise._src.testing.meshes import assert_same_sharding as assert_same_sharding
    from shardwise._src.testing.meshes import simulated_mesh as simulated_mesh
    from shardwise._src.testing.run_processes import run_processes as run_processes
    from shardwise._src.testing.sample import CheckFailure as CheckFailure
    from shardwise._src.testing.sample import Sample as Sample

lazy_names(__name__)
