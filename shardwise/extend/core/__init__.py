"""Operations of users, and programs as data."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.core.checker import check_program as check_jaxpr
    from shardwise._src.core.program import Equation as JaxprEqn
    from shardwise._src.core.program import Literal as Literal
    from shardwise._src.core.program import Program as ClosedJaxpr
    from shardwise._src.core.program import Program as Jaxpr
    from shardwise._src.core.program import Var as Var
    from shardwise._src.extend.primitive import Primitive as Primitive

lazy_names(__name__)
