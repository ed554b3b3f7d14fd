"""The core: `Op` and `bind`, interpreters, type inference, `Program` with printer and checker.

`ShapedArray` and `check_jaxpr` are JAX's names of `ArrayType` and `check_program`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.core.checker import check_program as check_jaxpr
    from shardwise._src.types.array_type import ArrayType as ShapedArray

__all__ = ["ShapedArray", "check_jaxpr"]
__getattr__, __dir__ = lazy_names(__name__)
