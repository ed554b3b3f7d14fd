"""The stages of a jitted function: traced, lowered, compiled."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.jit.compiled import Compiled as Compiled
    from shardwise._src.jit.stages import ArgInfo as ArgInfo
    from shardwise._src.jit.stages import CompilerOptions as CompilerOptions
    from shardwise._src.jit.stages import Lowered as Lowered
    from shardwise._src.jit.stages import Traced as Traced
    from shardwise._src.jit.stages import Wrapped as Wrapped

lazy_names(__name__)
