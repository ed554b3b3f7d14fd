"""Functions staged once for each signature of arguments: shared by `jit`, `checkify` and others.

For example:

    function = Stageable(fun, options)
    call = function.call(args, kwargs)          # leaves, their pytree, and the static arguments
    staged = function.staged(call)              # a program, cached for calls like this one
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from shardwise._src.arguments.float0_partition import apart, places, unflattened
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arguments.signatures import called
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.caches import cached, exact, make_room
from shardwise._src.base.config import log_compiles, no_tracing
from shardwise._src.base.context import CURRENT, current
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.base.monitoring import TRACE, took
from shardwise._src.core.fingerprints import fingerprint_of, is_plain, note
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.core.program import Program
from shardwise._src.jit.cache_miss_explain import is_full, log_miss
from shardwise._src.jit.options import NO_OPTIONS, Options
from shardwise._src.jit.static_arguments import incomparable, merged, split_static, unhashable
from shardwise._src.jit.trace_cache import CacheGroup, TraceCache, cache_group_of, code_in, leads_to
from shardwise._src.messages.argument_names import (
    Parameters,
    argument_names,
    flat_arguments,
    name_of,
    parameters_of,
)
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.ops.create import no_value
from shardwise._src.refs.refs import Ref, keepable, reject_returned, values_of, write_back
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import stage
from shardwise._src.transforms.tracer import Tracer, escaped
from shardwise._src.types.array_type import ArrayType, with_sharding
from shardwise._src.values.value import Value

CACHE_SIZE = 4096
TREES = 1024
SCALARS = (bool, int, float, complex, np.generic)  # their class determines their signature
_log = logging.getLogger("shardwise.jit")


class Call(NamedTuple):
    """A call of a staged function. Created if the call misses the cache.

    leaves: of the arguments that are not static; tree: their pytree, as (positional, named).
    static: the other arguments, as a part of keys (see `statics`); None if there are none.
    named:  the names of arguments, including static ones, in the order of the call; leaves
            are in another order.

    Known once it is staged, for each leaf:
    types:  with the specs of `in_shardings`, over Explicit axes.
    names:  for messages; sigs: signatures.
    shardings: the requested ones; None where not given.
    """

    leaves: Sequence[Any]
    tree: Any
    static: Any
    named: tuple[str, ...] = ()
    types: tuple[ArrayType, ...] = ()
    names: Sequence[str] | None = None
    sigs: Sequence[Signature] = ()
    shardings: Sequence[Any] | None = None

    @property
    def trace_key(self) -> tuple:
        """The key of its staged program."""
        return CURRENT.get().trace_key, self.tree, self.static, *self.types

    def has_arrays_only(self) -> bool:
        """Whether all non-static arguments are arrays."""
        args, kwargs = self.tree.unflatten(self.leaves)
        return all(a.__class__ is Array for a in (*args, *kwargs.values()))

    def is_flat(self) -> bool:
        """Whether no argument is static, named or a pytree."""
        return self.static is None and is_flat(self.tree)

    def arguments(self) -> tuple[tuple, dict]:
        """All arguments of the call, static ones included."""
        return merged(self.static, *self.tree.unflatten(self.leaves))


class Staged(NamedTuple):
    """A function staged for one signature of arguments.

    captured: tracers of outer transforms, the program's first arguments.
    refs:     captured refs that it accesses: the program takes and returns their values, last.
    out_tree: the pytree of its own results, without those of refs.
    """

    program: Program
    out_tree: Any
    captured: tuple[Any, ...]
    refs: tuple[Ref, ...]

    def inputs(self, leaves: Sequence[Any]) -> list[Any]:
        """The program's inputs in a call with these leaves."""
        return [*self.captured, *leaves, *values_of(self.refs)]

    def results(self, outs: Sequence[Any]) -> Sequence[Any]:
        """The function's own results, from those of the program; writes the values of refs."""
        count = len(outs) - len(self.refs)
        write_back(self.refs, outs[count:])
        return outs[:count]


class Stageable:
    """A function with options, and its caches: staged and compiled programs.

    what:  the function in messages.
    key:   represents the options in keys.
    known: tables, which others may share.
    with_values: functions of values in place of refs (see `jit.ref_arguments`).
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        options: Options = NO_OPTIONS,
        key: Any = None,
        known: TraceCache | None = None,
    ):
        self.fun = fun
        self.options = options
        self.key = key
        self.known = TraceCache() if known is None else known
        self.with_values: dict[tuple, Callable[..., Any]] = {}

    @functools.cached_property
    def name(self) -> str:
        return name_of(self.fun)

    @property
    def what(self) -> str:
        return f"jit of {self.name}"

    @functools.cached_property
    def parameters(self) -> Parameters:
        return parameters_of(self.fun)

    def moving(self) -> Parameters:
        """The parameters, for calls without static arguments."""
        return self.parameters.without(self.options.static_argnums)

    @staticmethod
    def keep(table: dict[tuple, Any], key: tuple, value: Any) -> None:
        make_room(table, CACHE_SIZE)
        table[key] = value

    def forget(self) -> None:
        self.known.forget()
        self.with_values.clear()
        fingerprint = fingerprint_of(self.fun)
        group = None if fingerprint is None else cache_group_of(fingerprint, self.key)
        if group is not None:
            group.forget()

    def group(self, call: Call) -> CacheGroup | None:
        """The cache group for calls like this one, shared by functions that surely do the same."""
        if not (_are_plain(call.static) and _has_plain_nodes(call.tree)):
            return None  # code of their classes may run
        fingerprint = fingerprint_of(self.fun)
        return None if fingerprint is None else cache_group_of(fingerprint, self.key)

    # -- calls --

    def call(self, args: tuple, kwargs: dict) -> Call:
        """A call with arrays or types."""
        static = None
        if self.options.has_static:
            static, args, kwargs = self.split(args, kwargs)
        leaves, tree = apart(*flat_arguments(args, kwargs, self.moving))
        return Call(self.checked(leaves, tree, abstract=True), tree, static)

    def split(self, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict]:
        """(static arguments as a part of keys, the other positional ones, the other named ones)."""
        found = split_static(self.options, args, kwargs)
        try:
            hash(found[0])
        except Exception as error:
            raise unhashable(self.what, self.parameters, found[0], error) from None
        return found

    def names(self, leaves: Sequence[Any], tree: Any) -> list[str]:
        """A name for each leaf of a call."""
        args, kwargs = unflattened(tree, leaves, lambda x: None)
        return argument_names(args, kwargs, self.moving())

    def checked(
        self, leaves: Sequence[Any], tree: Any, *, staged: bool = False, abstract: bool = False
    ) -> list[Any]:
        """The leaves of a call in forms that have types.

        staged: tracers are allowed; abstract: types are allowed, and tracers become types.
        """
        found = []
        for i, x in enumerate(leaves):
            try:
                ready = x.__class__ is Array or (staged and isinstance(x, Value))
                found.append(x if ready else _leaf(x, abstract))
            except UnexpectedTracerError:
                raise
            except TypeError as error:
                raise TypeError(
                    f"{self.what}: {self.names(leaves, tree)[i]}: {error} Arguments must be "
                    "pytrees of arrays and scalars; mark others static with static_argnums or "
                    "static_argnames."
                ) from None
        return found

    def reject_comparing(self, static: Any, error: Exception) -> NoReturn:
        """Raises the error for a failing `==` of a key: for a static argument, or the original."""
        known = self.known
        others = [k[2] for k in [*known.calls, *known.traces] if is_full(k) and k[2]]
        found = static and incomparable(self.what, self.parameters, static, others)
        if found:
            raise found from None
        raise error

    # -- staging --

    def staged(self, call: Call, *, refs: bool = False) -> Staged:
        """The function staged for arguments of a call's types; cached if it captured nothing.

        refs:  whether it may access captured refs, which the caller must then handle.
        """
        key = call.trace_key
        try:
            found = self.known.traces.get(key)
        except Exception as error:
            self.reject_comparing(call.static, error)
        if found is not None and (refs or not found.refs):
            return found
        group = self.group(call)
        found = None if group is None else group.traces.get(key)
        if found is None:
            found = self._new(call, [] if refs else None)
            if found.captured or not keepable(found.refs):
                return found
            fingerprint = fingerprint_of(self.fun)
            note(self.fun, fingerprint)
            code, count = code_in(found.program)
            if group is not None and not (code or found.refs) and fingerprint == group.fingerprint:
                group.keep(key, found, count)
            self._keep_apart(call, found, code)
        else:
            note(self.fun, group.fingerprint if group is not None else None)
        self.keep(self.known.traces, key, found)
        return found

    def _new(self, call: Call, refs: list[Ref] | None) -> Staged:
        if no_tracing.value:
            raise RuntimeError(
                f"{self.what}: this call requires tracing, but the flag no_tracing is on. "
                "Call it once beforehand, with arguments of the same types."
            )
        begin = time.perf_counter()
        new = self._staged(call, refs)
        seconds = time.perf_counter() - begin
        took(TRACE, seconds, self.name)
        if log_compiles.value:
            _log.warning("traced %s in %.1f ms", self.name, 1e3 * seconds)
        self.known.was_staged = True
        return new

    def _keep_apart(self, call: Call, new: Staged, code: Sequence[Any]) -> None:
        """Leaves the shared tables if the entry to be cached might reference the function itself.

        code: objects that contain user functions.
        """
        held = [*code]
        if not _are_plain(call.static):
            held.append(call.static)
        if not _has_plain_nodes(call.tree):
            held.append(_node_data(call.tree))
        if new.refs or (held and leads_to(self.fun, held)):
            self.known = TraceCache()

    def _staged(self, call: Call, refs: list[Ref] | None) -> Staged:
        tree, static = call.tree, call.static
        names = self.names(call.leaves, tree) if call.names is None else call.names
        out_tree: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            full = merged(static, *tree.unflatten(leaves))
            outs, treedef = apart(*flatten(called(self.what, self.fun, *full)))
            reject_returned(f"{self.what}: the function", outs)
            out_tree.append(treedef)
            return [self._result(x, treedef, i) for i, x in enumerate(outs)]

        program, captured = stage(flat, call.types, name=self.name, names=names, refs=refs)
        return Staged(program, out_tree[0], tuple(captured), tuple(refs or ()))

    def _result(self, x: Any, tree: Any, i: int) -> Any:
        if isinstance(x, Value | bool | int | float | complex | np.generic):
            return x
        try:
            if x.__class__ is not ShapeDtypeStruct:
                return EAGER.array(x)
        except TypeError as error:
            raise TypeError(
                f"{self._result_name(tree, i)}: {error} A jitted function must return a "
                "pytree of arrays and scalars."
            ) from None
        return no_value(type=with_sharding(x.aval, x.sharding), what=self._result_name(tree, i))

    def _result_name(self, tree: Any, i: int) -> str:
        path = leaf_paths(places(tree))[i]
        return f"{self.what}: the result{path and ' at ' + path}"

    def found_again(
        self, key: tuple, call: Call, group: CacheGroup | None
    ) -> Callable[[Sequence[Any]], Any] | None:
        """The cached program of a function that does the same, also stored for this one.

        key: of the call, with signatures; group: of the call.
        """
        found = None if group is None else group.calls.get(key)
        if group is None or found is None:
            return None
        run, of_trace, staged = found
        note(self.fun, group.fingerprint)
        self.known.was_staged = True
        self.keep(self.known.traces, of_trace, staged)
        self.keep_call(key, run, call)
        return run

    def keep_call(self, key: tuple, run: Callable[[Sequence[Any]], Any], call: Call) -> None:
        """Caches the function that runs a call, also under its short keys."""
        self.keep(self.known.calls, key, run)
        self.keep_short(key, run, call)

    def keep_short(self, key: tuple, run: Callable[[Sequence[Any]], Any], call: Call) -> None:
        """Caches the function that runs a call under keys that are cheaper to compute, if possible.

        They are (key of the context, names, signatures ...) for array arguments in call order, with
        static ones by value; (key of the context, kind of each argument ...) without pytrees and
        names; and (pytree, key of the context, kind of each leaf ...), with the static ones third,
        if there are any.
        """
        known = (Array, np.ndarray)
        if not all(a.__class__ in known or isinstance(a, SCALARS) for a in call.leaves):
            return
        calls = self.known.calls
        kinds = kinds_of(call.leaves)
        if call.static is not None:
            self.keep(calls, (call.tree, key[0], call.static, *kinds), run)
        else:
            self.keep(calls, (call.tree, key[0], *kinds), run)
            if is_flat(call.tree):
                self.keep(calls, (key[0], *kinds), run)
        if not call.has_arrays_only():
            return
        args, kwargs = call.arguments()
        every = [*args, *[kwargs[n] for n in call.named]]
        where = [*[""] * len(args), *call.named]  # leaves are in the order of names
        places = [n for n, a in zip(where, every, strict=True) if a.__class__ is Array]
        order = sorted(range(len(places)), key=places.__getitem__)
        if order != sorted(order):
            in_order = run
            run = lambda given: in_order([given[i] for i in order])  # noqa: E731
        parts = [a._sig if a.__class__ is Array else (exact(a), a) for a in every]
        self.keep(calls, (key[0], *call.named, *parts), run)

    # -- explaining cache misses --

    def explain(self, key: tuple, table: dict[tuple, Any], call: Call) -> None:
        """Logs why a table misses for the key of a call, if it does."""
        if key not in table:
            names = self.names(call.leaves, call.tree)
            log_miss(self.fun, key, list(table), names, self._before())

    def explain_trace(self, call: Call) -> None:
        """The same for the staged program of a call."""
        group, key = self.group(call), call.trace_key
        if group is None or key not in group.traces:
            self.explain(key, self.known.traces, call)

    def _before(self) -> str:
        """The history of this function for messages, if no call is known."""
        if self.known.traces:
            return "it has been traced before, under a transform or by `lower`, but not compiled."
        if self.known.was_staged:
            return "it has been called before, but its cached programs have been cleared."
        return ""


def is_flat(tree: Any) -> bool:
    """Whether a pytree of (args, kwargs) has only positional arguments, each of which is a leaf."""
    positional, named = tree.children()
    return positional.num_leaves + 1 == positional.num_nodes and not named.children()


def kinds_of(leaves: Sequence[Any]) -> list[Any]:
    """What determines the signatures of leaves, in a short key."""
    return [
        a._sig if (c := a.__class__) is Array else (a.shape, a.dtype) if c is np.ndarray else c
        for a in leaves
    ]


def _are_plain(static: Any) -> bool:
    return static is None or all(is_plain(v) for _, _, v in (*static[0], *static[1]))


@cached(TREES)
def _has_plain_nodes(tree: Any) -> bool:
    """Whether a pytree consists of Python's own containers only, with plain keys."""
    data = tree.node_data()
    if data is not None:
        kind, names = data
        if kind not in (tuple, list, dict, type(None)):
            return False
        if kind is dict and not all(map(is_plain, names)):
            return False
    return all(map(_has_plain_nodes, tree.children()))


def _node_data(tree: Any) -> list[Any]:
    """The classes and static parts of all containers in a pytree."""
    return [tree.node_data(), *map(_node_data, tree.children())]


def signatures_of(leaves: Sequence[Any]) -> list[Signature]:
    """The signatures of leaves in forms that have types: for arrays, their own."""
    return [a._sig if a.__class__ is Array else _signature(a) for a in leaves]


def _signature(x: Any) -> Signature:
    sharding = getattr(x, "sharding", None)
    return signature(type_of(x), sharding, sharding is not None, getattr(x, "layout", None))


def _leaf(x: Any, abstract: bool = False) -> Any:
    """An argument's leaf in a form that has a type: host values stay on the host."""
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex):
        type_of(x)  # raises for unsupported dtypes
        return x
    if isinstance(x, Tracer):
        if abstract and x.interpreter.alive:
            t = x.aval
            place = t.explicit_sharding
            return ShapeDtypeStruct(t.shape, t.dtype, sharding=place, weak_type=t.weak_type)
        raise escaped(x)
    if isinstance(x, ShapeDtypeStruct):
        if abstract or current().interpreter is not EAGER:
            return x
        raise TypeError(f"{x} has no data; types are for `trace`, `lower` and `eval_shape`.")
    if abstract and is_like_type(x):
        return struct_of(x)
    return EAGER.array(x)


def struct_of(x: Any) -> ShapeDtypeStruct:
    """What describes an array, such as a `ShapedArray`, as a `ShapeDtypeStruct`."""
    place = x.explicit_sharding if isinstance(x, ArrayType) else getattr(x, "sharding", None)
    weak = getattr(x, "weak_type", False)
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=place, weak_type=weak)


def is_like_type(x: Any) -> bool:
    """Whether an object describes an array like a `ShapeDtypeStruct`, without data."""
    return hasattr(x, "shape") and hasattr(x, "dtype") and as_arraylike(x) is x and not is_array(x)
