"""Random number generators, at JAX's former import path: see `shardwise.extend.random`."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.random.generators import PRNGImpl as PRNGImpl
    from shardwise._src.random.generators import rbg_prng_impl as rbg_prng_impl
    from shardwise._src.random.generators import seed_with_impl as seed_with_impl
    from shardwise._src.random.generators import threefry_2x32 as threefry_2x32
    from shardwise._src.random.generators import threefry_prng_impl as threefry_prng_impl
    from shardwise._src.random.generators import unsafe_rbg_prng_impl as unsafe_rbg_prng_impl

lazy_names(__name__)
