"""Helpers for tests: op and gradient checks, simulated meshes, assertions about placement."""

from shardwise.core.checker import ProgramError as ProgramError
from shardwise.core.checker import check_program as check_program
from shardwise.testing.check_op import check_op as check_op
from shardwise.testing.grads import check_grads as check_grads
from shardwise.testing.meshes import assert_same_sharding as assert_same_sharding
from shardwise.testing.meshes import simulated_mesh as simulated_mesh
from shardwise.testing.sample import CheckFailure as CheckFailure
from shardwise.testing.sample import Sample as Sample
