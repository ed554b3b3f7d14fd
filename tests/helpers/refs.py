"""Programs with refs in this library and in JAX, and error messages about refs."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np

import shardwise as sw
import shardwise.numpy as np_
from tests.helpers.comparing import close

X = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def both(make, *args):
    """Runs the function from `make(library, its numpy)` in both libraries, and compares."""
    close(make(sw, np_)(*args), make(jax, jnp)(*args), 2e-5, 0)


def here(text):
    """A message without the folders, lines and functions of its source locations."""
    return re.sub(r"\S*?(\w+\.py):\d+ \([^)]*\)", r"\1", text)
