"""Random arrays are the same in each test, whichever tests run before it."""

from __future__ import annotations

import pytest

from tests.kernels import kernels

START = kernels.RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_arrays():
    kernels.RNG.bit_generator.state = START
