"""The eager interpreter: runs each op, and each fused function, as one cached program."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from shardwise.base.context import current, update_root
from shardwise.core.infer import infer
from shardwise.core.interpreter import Interpreter
from shardwise.core.op import Op
from shardwise.core.program import Equation, Program, Var
from shardwise.engine.array import Array
from shardwise.engine.executable import Executable, build, default_single
from shardwise.engine.transfer import put_host, scalar
from shardwise.numpy.value import Value
from shardwise.runtime.pytree import flatten
from shardwise.transforms.stage import stage
from shardwise.transforms.tracer import Tracer, escaped
from shardwise.types.sharding import SingleDeviceSharding

CACHE_SIZE = 8192


class Eager(Interpreter):
    """Where every chain of interpreters ends. Caches programs by op and signatures."""

    eager = True
    __slots__ = ("cache",)

    def __init__(self) -> None:
        super().__init__(None, "eager", "execution")  # type: ignore[arg-type]
        self.cache: dict[tuple, Executable] = {}

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        if op.eager is not None:
            return self._run_user_code(op, args, params)
        try:
            key = (op, current().key, *[a._sig for a in args], *params, *params.values())
            exe = self.cache[key]
        except (AttributeError, KeyError, TypeError):
            args = self.arrays(args)
            exe = self._op_program(op, args, params)
        return exe(args)

    def call(self, fused: Any, args: tuple, static: dict[str, Any]) -> Any:
        try:
            n = fused.arrays
            if static:
                values = static.values()
                key = (fused, current().key, *[a._sig for a in args[:n]], *args[n:], *static,
                       *values, *map(type, values))
            else:
                key = (fused, current().key, *[a._sig for a in args[:n]], *args[n:])
            exe = self.cache[key]
        except (AttributeError, KeyError, TypeError):
            return self._call_slowly(fused, args, static)
        if exe.single:
            return exe(args[:n])
        return exe.out_tree.unflatten(exe(args[:n]))

    # -- what the caches do not know yet --

    def _run_user_code(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        with current().under(self).entered():
            return op.eager(args, params)  # type: ignore[misc]

    def arrays(self, args: Sequence[Any]) -> list[Array]:
        """Arguments as arrays: host values are put on the default device, uncommitted."""
        return [a if a.__class__ is Array else self.array(a) for a in args]

    def array(self, x: Any) -> Array:
        if isinstance(x, Array) and x.__class__ is Array:
            return x
        if isinstance(x, Tracer):
            raise escaped(x)
        if isinstance(x, np.ndarray) and x.ndim:
            return put_host(x, SingleDeviceSharding(default_single()), False)
        if isinstance(x, bool | int | float | complex | np.generic | np.ndarray):
            return scalar(x[()] if isinstance(x, np.ndarray) else x)
        if isinstance(x, Value):
            raise TypeError(f"{type(x).__name__} is no array that can run eagerly")
        raise TypeError(f"expected an array or a scalar, got {x!r} of type {type(x).__name__}.")

    def _op_program(self, op: Op, args: list[Array], params: dict[str, Any]) -> Executable:
        key = (op, current().key, *[a._sig for a in args], *params, *params.values())
        try:
            found = self.cache.get(key)
        except TypeError:
            raise TypeError(f"[{op.name}] parameters must be hashable; got {params}.") from None
        if found is not None:
            return found
        ins = [Var(a.aval) for a in args]
        types = infer(op, tuple([a.aval for a in args]), params)
        outs = [Var(t) for t in (types if op.multiple else (types,))]
        program = Program(ins, outs, [Equation(op, ins, outs, params, None)], name=op.name)
        sigs = [a._sig for a in args]
        exe = build(program, sigs, single=not op.multiple, quick=not op.programs)
        self._keep(key, exe)
        return exe

    def _call_slowly(self, fused: Any, args: tuple, static: dict[str, Any]) -> Any:
        args, static = fused.positional(args, static)
        arrays = self.arrays(args)
        static = {k: _hashable(v) for k, v in static.items()}
        values = static.values()
        key = (fused, current().key, *[a._sig for a in arrays], *static, *values,
               *map(type, values)) if static else (
               fused, current().key, *[a._sig for a in arrays])
        try:
            exe = self.cache.get(key)
        except TypeError:
            raise TypeError(f"{fused.name}: static arguments must be hashable; got {static}.") from None
        if exe is None:
            exe = self._fused_program(fused, arrays, static)
            self._keep(key, exe)
        results = exe(arrays)
        return results if exe.single else exe.out_tree.unflatten(results)

    def _fused_program(self, fused: Any, args: list[Array], static: dict[str, Any]) -> Executable:
        tree: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            leaves, treedef = flatten(fused.fun(*tracers, **static))
            tree.append(treedef)
            return leaves

        program, _ = stage(flat, [a.aval for a in args], name=fused.name, parent=self)
        single = tree[0].num_nodes == 1 and tree[0].num_leaves == 1
        exe = build(program, [a._sig for a in args], single=single, quick=True)
        exe.out_tree = tree[0]
        return exe

    def _keep(self, key: tuple, exe: Executable) -> None:
        if len(self.cache) >= CACHE_SIZE:
            del self.cache[next(iter(self.cache))]
        self.cache[key] = exe


def _hashable(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_hashable(v) for v in x)
    if isinstance(x, np.ndarray):
        return tuple(_hashable(v) for v in x.tolist()) if x.ndim else x.item()
    return x


EAGER = Eager()
update_root(interpreter=EAGER)
