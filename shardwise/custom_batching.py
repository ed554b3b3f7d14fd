"""Functions with rules of their own for `vmap`."""

from shardwise.control.custom_vmap import custom_vmap as custom_vmap
from shardwise.control.custom_vmap import sequential_vmap as sequential_vmap
