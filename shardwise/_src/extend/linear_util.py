"""Functions with a stack of transformations, as in JAX's interpreters.

A transformation is a generator: it yields the arguments for the function, receives its result, and
yields its own result. With `aux` it yields a pair, whose second element is read later.
Transformations whose names end in 2 are plain functions, which get the inner function first.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class StoreException(Exception):
    """A value of a transformation was read before the function ran, or was set twice."""


class _Store:
    """The auxiliary output of a transformation."""

    def __init__(self, may_repeat: bool = False) -> None:
        self._values: list[Any] = []
        self._may_repeat = may_repeat  # whether it may be set again to an equal value

    def set(self, value: Any) -> None:
        if self._values:
            if self._may_repeat and self._values[0] == value:
                return
            raise StoreException("the function of a transformation with `aux` ran a second time")
        self._values.append(value)

    def __call__(self) -> Any:
        if not self._values:
            raise StoreException("the function of a transformation with `aux` has not run yet")
        return self._values[0]


class _Layer(NamedTuple):
    """A transformation, its first arguments, and the store of its auxiliary output."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    store: _Store | None
    is_generator: bool


class WrappedFun:
    """A function with transformations, the last of which is outermost.

    f: the function; params: its keyword arguments; debug_info: from `api_util.debug_info`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        layers: tuple[_Layer, ...] = (),
        params: dict[str, Any] | None = None,
        debug_info: Any = None,
    ):
        self.f, self._layers = f, layers
        self.params = dict(params or {})
        self.debug_info = debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "f")

    def wrap(self, layer: _Layer) -> WrappedFun:
        return WrappedFun(self.f, (*self._layers, layer), self.params, self.debug_info)

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function with all of its transformations."""
        run: Callable[..., Any] = functools.partial(self.f, **self.params)
        for layer in self._layers:
            run = functools.partial(_by_generator if layer.is_generator else _direct, layer, run)
        return run(*args, **kwargs)

    def with_unknown_names(self) -> WrappedFun:
        return self

    def __repr__(self) -> str:
        return f"WrappedFun({self.__name__})"


def _by_generator(layer: _Layer, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    steps = layer.fun(*layer.args, *args, **kwargs)
    inner, keywords = next(steps)
    result = steps.send(run(*inner, **keywords))
    steps.close()
    if layer.store is not None:
        result, aux = result
        layer.store.set(aux)
    return result


def _direct(layer: _Layer, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    first = () if layer.store is None else (layer.store.set,)
    return layer.fun(run, *first, *layer.args, *args, **kwargs)


def wrap_init(
    f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None
) -> WrappedFun:
    """A function without transformations. params: its keyword arguments."""
    return WrappedFun(f, (), params, debug_info)


def transformation(gen: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """Makes a transformation from a generator: `(fun, *first arguments)` → transformed function."""
    return functools.partial(_transformed, gen, True)


def transformation_with_aux(
    gen: Callable[..., Any],
) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation`, for generators of (result, aux); also returns a thunk for aux."""

    return functools.partial(_with_aux, gen, True)


def transformation2(gen: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """Makes a transformation of `gen(inner function, *first arguments, *arguments)`."""
    return functools.partial(_transformed, gen, False)


def transformation_with_aux2(
    gen: Callable[..., Any],
) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """Like `transformation2` for `gen(inner function, store, …)`; `store(value)` stores the aux."""

    return functools.partial(_with_aux, gen, False)


def _transformed(
    gen: Callable[..., Any], is_generator: bool, fun: WrappedFun, *gen_static_args: Any
) -> WrappedFun:
    """A function with one more transformation."""
    return fun.wrap(_Layer(gen, gen_static_args, None, is_generator))


def _with_aux(
    gen: Callable[..., Any],
    is_generator: bool,
    fun: WrappedFun,
    *gen_static_args: Any,
    use_eq_store: bool = False,
    unk_names: bool = False,
) -> tuple[WrappedFun, Callable[[], Any]]:
    """A function with a transformation that has an auxiliary output, and a thunk that reads it.

    use_eq_store: whether the function may run again, if its auxiliary output is then equal.
    unk_names: whether the names of its arguments are no longer known.
    """
    store = _Store(use_eq_store)
    wrapped = fun.wrap(_Layer(gen, gen_static_args, store, is_generator))
    return wrapped.with_unknown_names() if unk_names else wrapped, store


def merge_linear_aux(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, value) of the first if it has a value, else (False, value) of the second."""
    try:
        return True, first()
    except StoreException:
        return False, second()


def cache(call: Callable[..., Any]) -> Callable[..., Any]:
    """Caches the results of `call(fun, *args)` for the lifetime of the `WrappedFun`."""
    tables: weakref.WeakKeyDictionary[WrappedFun, dict[Sequence[Any], Any]]
    tables = weakref.WeakKeyDictionary()

    @functools.wraps(call)
    def remembered(fun: WrappedFun, *args: Any) -> Any:
        table = tables.setdefault(fun, {})
        if args not in table:
            table[args] = call(fun, *args)
        return table[args]

    return remembered
