"""Placeholders for gradients that `vjp` does not return as values; see `VJP.with_refs`.

For example:

    back.with_refs(GradValue(), DontWant())(ct)     # (a cotangent, DidntWant())
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.autodiff.closure_convert import DidntWant as DidntWant
    from shardwise._src.autodiff.closure_convert import DontWant as DontWant
    from shardwise._src.autodiff.closure_convert import GradRef as GradRef
    from shardwise._src.autodiff.closure_convert import GradValue as GradValue

lazy_names(__name__)
