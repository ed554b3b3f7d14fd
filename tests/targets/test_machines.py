"""Machines by name, and programs that are compiled for them."""

import numpy as np
import pytest

import shardwise.numpy as jnp
from tests.helpers.errors import message
from tests.helpers.targets import MACHINES, compiled


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_is_compiled_and_read(machine):
    made = compiled(lambda x, y: jnp.tanh(x @ y), machine, np.ones((64, 32)), np.ones((32, 16)))
    assert made.as_text().startswith("HloModule")
    assert made.memory_analysis().argument_size_in_bytes >= 4 * (64 * 32 + 32 * 16)
    assert made.cost_analysis()["flops"] >= 2 * 64 * 32 * 16


@pytest.mark.parametrize("machine", MACHINES)
def test_it_cannot_be_called(machine):
    made = compiled(jnp.sin, machine, np.ones(3))
    found = message(RuntimeError, made, np.ones(3, np.float32))
    assert found.startswith(f"sin needs the devices of '{machine}:1") and "only described" in found
