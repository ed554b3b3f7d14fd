"""`CallPrimitive`: a user-defined operation that calls a function, printed as a program.

    named = CallPrimitive("named")
    named.bind(fun, x, label="a")       # fun: a `WrappedFun`; runs it, or stages it as a program
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.control.call import calling, partial_eval_call
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program, eval_program
from shardwise._src.extend.linear_util import WrappedFun, wrap_init
from shardwise._src.extend.primitive import Primitive
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import ArrayType


class CallPrimitive(Primitive):
    """An operation that calls a function, with all the rules of nested `jit`.

    Its equations have the program as the parameter `call_jaxpr`, and the parameters of `bind`.
    """

    multiple_results = True
    call_primitive = True

    @property
    def op(self) -> Op:
        if self._op is None:
            self._op = calling(self.name, _lower, partial_eval_call, is_call=True, foreign=self)
        return self._op

    def bind(
        self, *args: Any, subfuns: Sequence[WrappedFun] = (), **params: Any
    ) -> list[Any]:
        """Calls a function: the first argument, or the only element of `subfuns`.

        Outside of every transform it runs the implementation, if there is one; otherwise it stages
        the function.
        """
        (fun,), args = (subfuns, args) if subfuns else (args[:1], args[1:])
        if current().interpreter.eager:
            impl = self.impl or (lambda fun, *args, **params: fun.call_wrapped(*args))
            return list(impl(fun, *args, **params))
        program, outer = stage(
            lambda *xs: list(fun.call_wrapped(*xs)), [type_of(x) for x in args], name=fun.__name__
        )
        return self.op(*outer, *args, program=program, **params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of `bind`: the function of an equation's program, and the rest."""
        rest = {k: v for k, v in params.items() if k != "program"}
        program: Program = params["program"]

        def run(*args: Any) -> list[Any]:
            return eval_program(program, args)

        run.__name__ = program.name
        return {**rest, "subfuns": (wrap_init(run),)}


def _lower(
    op: Op, e: Any, ins: Sequence[ArrayType], outs: Any, *xs: str, program: Program, **params: Any
) -> list[str]:
    return e.call(program, *xs)
