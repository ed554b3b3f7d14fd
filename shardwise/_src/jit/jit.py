"""`jit`: functions staged once for each signature of arguments and compiled to one program."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import WRAPPER_ASSIGNMENTS
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from numpy import ndarray

from shardwise._src.arguments.float0_partition import apart, places
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct, shapes_of
from shardwise._src.arguments.signatures import check_function
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import signature
from shardwise._src.base.caches import PLAIN, exact
from shardwise._src.base.config import disable_jit as _disabled
from shardwise._src.base.config import explain_cache_misses
from shardwise._src.base.context import CURRENT
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.base.warn import warn
from shardwise._src.control.call import call as bind_call
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program, eval_program
from shardwise._src.jit.described_devices import with_devices
from shardwise._src.jit.donations import report
from shardwise._src.jit.options import (
    NO_OPTIONS,
    Inline,
    JitOptions,
    Options,
    check_outermost,
    options_for,
)
from shardwise._src.jit.ref_arguments import (
    closing_over_refs,
    has_refs,
    through_refs,
    traced_closing_over_refs,
    traced_through_refs,
    without_last_values,
)
from shardwise._src.jit.stages import Lowered, Traced, used_arguments
from shardwise._src.jit.staging import Call, Stageable, Staged, kinds_of, signatures_of
from shardwise._src.jit.static_arguments import split_static
from shardwise._src.jit.trace_cache import (
    CacheGroup,
    TraceCache,
    forget_what_is_made_of,
    trace_cache_of,
)
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.messages.argument_names import flat_arguments, name_of
from shardwise._src.messages.tracebacks import hide_frames, hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.ops.sharded.sharding_ops import sharding_constraint
from shardwise._src.refs.refs import is_ref
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.runtime.pytree import flatten_quickly, refund
from shardwise._src.transfers.targets import check_fit, check_global
from shardwise._src.transforms.tracer import escaped
from shardwise._src.types.array_type import ArrayType, with_sharding
from shardwise._src.types.sharding import SingleDeviceSharding

_attributes = attrgetter(*WRAPPER_ASSIGNMENTS)
P = ParamSpec("P")
R = TypeVar("R")


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """In a `with` block, jitted functions, loops and branches run op by op, for debugging.

    disable: False enables compilation again inside such a block.
    """
    return _disabled(disable)


def _bound(program: Program, inputs: Sequence[Any], inline: Inline) -> Sequence[Any]:
    """The results of a program that is called in another one."""
    if inline is Inline.AUTO:
        return bind_call(*inputs, program=program)
    if inline is Inline.JAX_EARLY:
        return eval_program(program, inputs)
    return bind_call(*inputs, program=program, inline=inline.value)


def packed(options: Options) -> dict[str, Any] | None:
    """Options in a pickle; None for the default ones."""
    return None if options is NO_OPTIONS else options._asdict()


def unpacked(options: dict[str, Any] | None) -> Options:
    return NO_OPTIONS if options is None else Options(**options)


class Jitted(Generic[P, R]):
    """A jitted function. Made by `jit`."""

    __slots__ = (
        "_fun",
        "_options",
        "_key",
        "_cache",
        "_quick",
        "_static",
        "_arrays_only",
        "_flat",
        "_made",
        "__dict__",
        "__weakref__",
    )

    def __init__(self, fun: Callable[P, R], options: Options):
        key = None if options is NO_OPTIONS else options.key()
        if fun.__class__ is FunctionType:  # like `update_wrapper`, in a third of the time
            self.__dict__ = dict(zip(WRAPPER_ASSIGNMENTS, _attributes(fun), strict=True))
            self.__dict__.update(fun.__dict__, __wrapped__=fun)
        else:
            functools.update_wrapper(self, fun)
            self.__name__ = name_of(fun)
        self._fun = fun
        self._options = options
        self._key = key
        self._made: Stageable | TraceCache = trace_cache_of(fun, key)
        self._cache: dict[tuple, Callable[[Sequence[Any]], Any]] = self._made.calls
        self._quick = options is NO_OPTIONS or not options.device
        self._static = options.has_static
        # Until a call shows otherwise: arguments are arrays or static, and none is a pytree.
        self._arrays_only = self._flat = True

    @property
    def _function(self) -> Stageable:
        """The function with all its cached data; a call that hits the cache does not use this."""
        found = self._made
        if isinstance(found, TraceCache):
            found = self._made = Stageable(self._fun, self._options, self._key, found)
        return found

    def fingerprint(self, part: Callable[[Any], Any]) -> tuple[Any, ...]:
        """The fingerprint (see `core.fingerprints`). part: returns that of a function."""
        return part(self._fun), self._key

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            return inspect.signature(self._fun)
        except ValueError as error:  # for some builtin functions
            raise AttributeError(str(error)) from None

    def __reduce__(self) -> Any:
        """By name if a module has it, as functions are pickled; else by its constituents.

        cloudpickle serializes the functions of a `__main__`, for processes with another one.
        """
        return self._name_in_module() or reduced("jit", self._fun, packed(self._options))

    def _name_in_module(self) -> str | None:
        name = getattr(self, "__qualname__", "")
        held = sys.modules.get(getattr(self, "__module__", None) or "")
        for part in name.split("."):
            held = getattr(held, part, None)
        return name if held is self and self.__module__ != "__main__" else None

    def __repr__(self) -> str:
        return f"<jitted function {self._function.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        ctx, flat = CURRENT.get(), None
        if self._quick and ctx.interpreter is EAGER:
            # Measured: checking the class of each argument first costs 35 ns with one and 100 ns
            # with ten, of 400 and 640; a list of one, 150 ns; a pytree of named ones, 1 µs.
            given: Any = args
            try:
                if not self._arrays_only:
                    if self._static:
                        static, moving, named = split_static(self._options, args, kwargs)
                        given, tree = flatten_quickly((moving, named))
                        run = self._cache[tree, ctx.key, static, *kinds_of(given)]
                    elif self._flat and not kwargs:
                        if len(args) == 1 and (x := given[0]).__class__ is ndarray:  # 0.7 µs less
                            run = self._cache[ctx.key, (x.shape, x.dtype)]
                        else:
                            run = self._cache[ctx.key, *kinds_of(args)]
                    else:
                        given, tree = flat = flatten_quickly((args, kwargs))
                        run = self._cache[tree, ctx.key, *kinds_of(given)]
                elif self._static:
                    if kwargs:
                        given = (*args, *kwargs.values())
                    parts = [
                        a._sig
                        if (c := a.__class__) is Array
                        else (c if c in PLAIN else exact(a), a)
                        for a in given
                    ]
                    run = self._cache[ctx.key, *kwargs, *parts]
                    given = [a for a in given if a.__class__ is Array]
                elif kwargs:
                    given = [*args, *kwargs.values()]
                    run = self._cache[ctx.key, *kwargs, *[a._sig for a in given]]
                elif len(args) == 1:
                    run = self._cache[ctx.key, given[0]._sig]
                else:
                    run = self._cache[ctx.key, *[a._sig for a in given]]
            except KeyError:  # not cached yet
                pass
            except Exception as error:  # not an array; or an error in a container's `==`
                if flat is None:
                    refund((args, kwargs), error)
            else:
                try:
                    return run(given)
                except Exception as error:
                    hide_frames(error)
                    raise
        try:
            return self._call(ctx, args, kwargs, flat)
        except Exception as error:
            hide_frames(error)
            raise

    def _call(self, ctx: Any, args: tuple, kwargs: dict, flat: Any) -> Any:
        """flat: leaves and pytree of the arguments, if known."""
        eager, static, named = ctx.interpreter is EAGER, None, tuple(kwargs)
        if _disabled.value:
            return self._fun(*args, **kwargs)
        if self._options.has_static:
            static, args, kwargs = self._function.split(args, kwargs)
            flat = None
        leaves, tree = flat or flat_arguments(args, kwargs, self._function.moving)
        if not eager:
            return self._call_staged(Call(leaves, tree, static))
        if self._options.device is not None and not any(map(is_ref, leaves)):
            leaves, tree = apart(leaves, tree)
            leaves = [EAGER.place(x, self._options.device) for x in leaves]
        # Values that are not arrays yet have no signature: a key with None is in no table.
        sigs = [a._sig if a.__class__ is Array else None for a in leaves]
        key = (ctx.key, tree, static, *sigs)
        run = self._known(key)
        if run is not None and self._quick:
            self._add_short_key(key, run, Call(leaves, tree, static, named))
        if run is None and None in sigs:
            if any(map(is_ref, leaves)):
                return through_refs(Jitted, self._function, Call(leaves, tree, static))
            leaves, tree = apart(leaves, tree)
            leaves = self._function.checked(leaves, tree)
            key = (ctx.key, tree, static, *signatures_of(leaves))
            run = self._known(key)
            if run is not None and self._quick:
                self._add_short_key(key, run, Call(leaves, tree, static, named))
        if run is None:
            run = self._compile(key, Call(leaves, tree, static, named))
        return run(leaves)

    def _add_short_key(self, key: tuple, run: Callable[[Sequence[Any]], Any], call: Call) -> None:
        """Caches a call, which is known by its long key only, under a short one."""
        self._function.keep_short(key, run, call)
        self._choose_key(call)

    def _choose_key(self, call: Call) -> None:
        """Chooses the kind of short key that later calls have; see `__call__`."""
        self._arrays_only = self._arrays_only and call.has_arrays_only()
        self._flat = self._flat and call.is_flat()

    def _known(self, key: tuple) -> Callable[[Sequence[Any]], Any] | None:
        """The function that runs calls with a key."""
        try:
            return self._cache.get(key)
        except Exception as error:  # from `==` of a static argument, or of a pytree's data
            self._function.reject_comparing(key[2], error)

    def _call_staged(self, call: Call) -> Any:
        """Under another transform: one `jit` equation, or the program pushed through it."""
        function, options = self._function, self._options
        if options.compiler_options:
            check_outermost(function.what)
        if any(map(is_ref, call.leaves)):
            return through_refs(Jitted, function, call)
        leaves, tree = apart(call.leaves, call.tree)
        leaves = function.checked(leaves, tree, staged=True)
        ins = options.shardings_in(function.what, tree, function.parameters)
        if ins is not None:
            names = function.names(leaves, tree)
            leaves = _constrained(leaves, ins, names, f"{function.what}: in_shardings")
        types = tuple([type_of(a) for a in leaves])
        call = call._replace(leaves=leaves, tree=tree, types=types)
        if explain_cache_misses.value:
            function.explain_trace(call)
        staged = function.staged(call, refs=True)
        inputs, program = staged.inputs(leaves), staged.program
        outs = staged.results(_bound(program, inputs, options.inline))
        wanted = None
        if options.device is None:
            wanted = options.shardings_out(function.what, staged.out_tree)
        if wanted is not None:
            names = _result_names(staged.out_tree)
            outs = _constrained(outs, wanted, names, f"{function.what}: out_shardings")
        return staged.out_tree.unflatten(outs)

    # -- compiling --

    def _compile(self, key: tuple, call: Call) -> Callable[[Sequence[Any]], Any]:
        function = self._function
        group = function.group(call)
        run = function.found_again(key, call, group)
        if run is None:
            run = self._new_run(key, call, group)
        self._cache = function.known.calls
        self._choose_key(call)
        return run

    def _new_run(
        self, key: tuple, call: Call, group: CacheGroup | None
    ) -> Callable[[Sequence[Any]], Any]:
        function = self._function
        if explain_cache_misses.value:
            function.explain(key, self._cache, call)
        call = self._typed(call)
        staged = function.staged(call, refs=True)
        if staged.refs:
            run = closing_over_refs(Jitted, function, call, staged)
        else:
            compiled = self._traced(call, staged).lower().compile()
            run = compiled.runner()
            if message := report(function.what, compiled.executable):
                warn(message)
            if group is not None:
                group.keep_call(key, run, call.trace_key)
        function.keep_call(key, run, call)
        return run

    def _typed(self, call: Call) -> Call:
        """The call with the types, names, signatures and requested shardings of its leaves."""
        function, options, tree = self._function, self._options, call.tree
        sigs = signatures_of(call.leaves)
        if options.device is not None:
            there = SingleDeviceSharding(options.device)
            sigs = [signature(s.type.update(spec=None, mesh=None), there, True) for s in sigs]
        ins = options.shardings_in(function.what, tree, function.parameters)
        types = [s.type for s in sigs]
        names = function.names(call.leaves, tree)
        if ins is not None:
            check_fit(ins, types, names, f"{function.what}: in_shardings")
            check_global(sigs, ins, names, function.what)
            pairs = zip(types, map(bare, ins), strict=True)
            types = [t if s is None else with_sharding(t, s) for t, s in pairs]
        return call._replace(types=tuple(types), names=names, sigs=sigs, shardings=ins)

    def _traced(self, call: Call, staged: Staged) -> Traced:
        if staged.captured:
            raise escaped(staged.captured[0])
        options, what = self._options, self._function.what
        program, out_tree = staged.program, staged.out_tree
        outs = options.shardings_out(what, out_tree, program)
        if outs is not None:
            check_fit(outs, program.out_types, _result_names(out_tree), f"{what}: out_shardings")
        everything = tuple(range(len(call.sigs)))
        return Traced(
            program,
            call.sigs,
            call.names or (),
            in_tree=call.tree,
            out_tree=out_tree,
            in_shardings=call.shardings,
            out_shardings=outs,
            donated=options.donated(call.tree),
            overrides=options.compiler_options,
            kept=everything if options.keep_unused else used_arguments(program),
        )

    # -- stages --

    @hides_frames
    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """The staged program for these arguments (arrays, refs or `ShapeDtypeStruct`s).

        The values of refs are arguments and results of the program.
        """
        if has_refs((args, kwargs)):
            return traced_through_refs(Jitted, self._function, args, kwargs)
        call = self._function.call(args, kwargs)
        call = self._typed(call._replace(leaves=with_devices(self._function.what, call.leaves)))
        staged = self._function.staged(call, refs=True)
        if staged.refs:
            return traced_closing_over_refs(Jitted, self._function, call, staged)
        return self._traced(call, staged)

    def staged_program(self, *args: P.args, **kwargs: P.kwargs) -> tuple[Program, Any]:
        """The staged program, and the types of its results in their pytree.

        Tracers of outer transforms that the function uses are constants of the program.
        """
        traced = None
        if not has_refs((args, kwargs)):
            call = self._typed(self._function.call(args, kwargs))
            staged = self._function.staged(call, refs=True)
            program, outer = staged.program, staged.captured
            if outer and not staged.refs:
                program = program.replace(consts=(*program.consts, *outer))
                return program, shapes_of(program, staged.out_tree)
            traced = None if staged.refs else self._traced(call, staged)
        traced = traced or self.trace(*args, **kwargs)
        return traced.program, without_last_values(traced)

    @hides_frames
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """`trace(...)` lowered to StableHLO."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The types of the results, without compiling; they include explicit shardings."""
        if has_refs((args, kwargs)):
            return without_last_values(self.trace(*args, **kwargs))
        call = self._function.call(args, kwargs)
        types = tuple([_explicit_type(x) for x in call.leaves])
        staged = self._function.staged(call._replace(types=types), refs=True)
        return shapes_of(staged.program, staged.out_tree)

    def clear_cache(self) -> None:
        """Clears all traces and compiled programs of this function."""
        self._function.forget()
        forget_what_is_made_of(self)

    def _cache_size(self) -> int:
        return len(self._function.known.traces)


def _explicit_type(x: Any) -> ArrayType:
    return with_sharding(type_of(x), x.sharding) if type(x) is ShapeDtypeStruct else type_of(x)


# Libraries recognize jitted functions by the name of their class in JAX; pickles find it by name.
Jitted.__name__ = Jitted.__qualname__ = "PjitFunction"
PjitFunction = Jitted
closed_by_fork(Jitted, "__call__")

read_by("jit", lambda fun, options: Jitted(fun, unpacked(options)))


def _result_names(tree: Any) -> list[str]:
    return ["result" + p for p in leaf_paths(places(tree))]


def _constrained(values: Any, shardings: Any, names: Sequence[str], what: str) -> list[Any]:
    check_fit(shardings, [type_of(x) for x in values], names, what)
    wanted = map(bare, shardings)  # layouts apply to entire programs only
    return [
        x if s is None else sharding_constraint(x, sharding=s)
        for x, s in zip(values, wanted, strict=True)
    ]


@overload
def jit(fun: Callable[P, R], /, **options: Unpack[JitOptions]) -> Jitted[P, R]: ...


@overload
def jit(**options: Unpack[JitOptions]) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    fun: Callable[P, R] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool | Inline = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compiles a function: staged once for each signature of arguments, run as one program.

    Args:
      fun: a function of arrays in pytrees; its Python code runs only while it is staged.
      in_shardings, out_shardings: shardings as prefixes of the pytrees of arguments and results.
        None: arguments keep their shardings, results get the partitioner's choice.
      static_argnums, static_argnames: arguments that are part of the program; hashable.
      donate_argnums, donate_argnames: arguments whose memory the program may reuse; they are
        deleted after the call, unless no result has their shape and dtype.
      keep_unused: whether unused arguments are still transferred to the function's devices.
        By default they stay where they are, are not donated, and do not affect placement.
      device, backend: where to run: a device, or a platform's name for its first one. Arguments
        are transferred there. Prefer `in_shardings`.
      inline: when the function's equations replace its calls in other functions, as a
        `shardwise.Inline`; True is `Inline.JAX_EARLY`, while these are staged, False `Inline.AUTO`.
      compiler_options: XLA options by name, of an outermost call: in functions that `jit` or
        reverse mode trace it is an error to have them, and `vmap` and `jvp` compile without them.

    Returns:
      A function of the same signature, with `trace`, `lower`, `eval_shape` and `clear_cache`.

    Raises:
      ValueError: at the call, if arguments are committed to different devices.
    """
    if (
        fun is not None
        and keep_unused is inline is False
        and in_shardings
        is out_shardings
        is static_argnums
        is static_argnames
        is donate_argnums
        is donate_argnames
        is device
        is backend
        is compiler_options
        is None
    ):  # the usual case, without a dict
        check_function("jit", fun)
        return Jitted(fun, NO_OPTIONS)
    given = {k: v for k, v in locals().items() if k != "fun"}
    if fun is None:
        return functools.partial(jit, **given)
    check_function("jit", fun)
    return Jitted(fun, options_for(fun, **given))
