"""`jit`: functions staged once for each kind of arguments, compiled, and run as one program."""

from __future__ import annotations

import functools
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakSet

import numpy as np

from shardwise._src.api.misses import is_full as _is_full
from shardwise._src.api.misses import log_miss
from shardwise._src.api.refs import closing_over_refs, through_refs
from shardwise._src.api.signatures import (
    JitOptions,
    Options,
    both,
    called,
    check_function,
    check_options,
    names_of,
    names_without_static,
    without_static,
)
from shardwise._src.api.stages import (
    ShapeDtypeStruct,
    Traced,
    compiler_overrides,
    shapes_of,
    used_arguments,
)
from shardwise._src.api.statics import incomparable, merged, split_static
from shardwise._src.api.trees import (
    argument_names,
    broadcast_prefix,
    broadcast_to_arguments,
    leaf_paths,
)
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.caches import make_room, snapshot
from shardwise._src.base.config import disable_jit, explain_cache_misses, log_compiles
from shardwise._src.base.context import CURRENT
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.control.call import call
from shardwise._src.core.infer import is_value, known, type_of
from shardwise._src.core.interpreter import name_of
from shardwise._src.core.program import Program
from shardwise._src.lowering.storage import bare
from shardwise._src.messages.tracebacks import hide_frames, hides_frames
from shardwise._src.messages.words import listed
from shardwise._src.moving.targets import as_boundary, check_fit, is_sharding_leaf
from shardwise._src.numpy.value import Value
from shardwise._src.ops.sharding import sharding_constraint
from shardwise._src.refs.refs import (
    NotThreaded,
    Ref,
    is_ref,
    keepable,
    refuse_returned,
    values_of,
    write_back,
)
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.backend import devices
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import stage
from shardwise._src.transforms.tracer import Tracer, escaped
from shardwise._src.types.array_type import with_sharding
from shardwise._src.types.sharding import SingleDeviceSharding

P = ParamSpec("P")
R = TypeVar("R")

CACHE_SIZE = 4096
_log = logging.getLogger("shardwise.jit")


class Jitted(Generic[P, R]):
    """A jitted function. Made by `jit`."""

    def __init__(self, fun: Callable[P, R], options: Options):
        functools.update_wrapper(self, fun)
        self.__wrapped__ = fun
        self._fun = fun
        self._name = name_of(fun)
        self._options = options
        self._names: tuple[str, ...] | None = None  # of the positional parameters
        self._cache: dict[tuple, Callable[[Sequence[Any]], Any]] = {}
        self._traces: dict[tuple, tuple[Program, Any, tuple[Ref, ...]]] = {}
        self._functional: dict[tuple, Jitted[..., Any]] = {}
        self._was_traced = False
        self._plain = not options.static_argnums and not options.static_argnames
        self._arrays_only = self._plain and options.device is None  # until a call shows otherwise
        _alive.add(self)

    @property
    def _parameters(self) -> tuple[str, ...]:
        if self._names is None:
            self._names = names_of(self._fun)
        return self._names

    @property
    def _moving(self) -> list[str]:
        """The names of the positional parameters that are not static."""
        return names_without_static(self._parameters, self._options.static_argnums)

    @property
    def _what(self) -> str:
        return f"jit of {self._name}"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jitted function {self._name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        ctx = CURRENT.get()
        if self._arrays_only and ctx.interpreter is EAGER and not kwargs:
            try:
                run = self._cache[
                    ctx.key, *[a._sig for a in args]  # pyright: ignore[reportAttributeAccessIssue]
                ]
            except (AttributeError, KeyError):
                pass
            else:
                return run(args)
        try:
            return self._call(ctx, args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def _call(self, ctx: Any, args: tuple, kwargs: dict) -> Any:
        if disable_jit.value or (self._options.inline and ctx.interpreter is not EAGER):
            return self._fun(*args, **kwargs)
        static, args, kwargs = self._split_static(args, kwargs)
        leaves, tree = flatten((args, kwargs))
        if ctx.interpreter is not EAGER:
            if any(map(is_ref, leaves)):
                return through_refs(self, static, args, kwargs)
            return self._call_staged(leaves, tree, static, args, kwargs)
        if self._options.device is not None and not any(map(is_ref, leaves)):
            leaves = [EAGER.place(x, self._options.device) for x in leaves]
        try:
            key = (ctx.key, tree, static, *[a._sig for a in leaves])
            run = self._cache.get(key)
        except Exception:  # also of the `==` of static arguments
            if any(map(is_ref, leaves)):
                return through_refs(self, static, args, kwargs)
            leaves = self._checked(leaves, args, kwargs)
            sigs = [a._sig if a.__class__ is Array else _host_signature(a) for a in leaves]
            key = (ctx.key, tree, static, *sigs)
            run = self._found(self._cache, key, static)
        if run is None:
            run = self._compile(key, leaves, tree, static, args, kwargs)
        return run(leaves)

    def _checked(
        self, leaves: list[Any], args: tuple, kwargs: dict, *, staged: bool = False,
        abstract: bool = False,
    ) -> list[Any]:
        """The leaves of a call in forms that have types.

        staged: tracers are allowed; abstract: types are, and tracers become types.
        """
        found = []
        for i, x in enumerate(leaves):
            try:
                ready = x.__class__ is Array or (staged and isinstance(x, Value))
                found.append(x if ready else _leaf(x, abstract))
            except UnexpectedTracerError:
                raise
            except TypeError as error:
                name = self._argument_names(args, kwargs)[i]
                raise TypeError(
                    f"jit of {self._name}: {name}: {error} Arguments are arrays and scalars, in "
                    "pytrees; mark others static with static_argnums or static_argnames."
                ) from None
        return found

    def _argument_names(self, args: tuple, kwargs: dict) -> list[str]:
        """A name for each leaf of a call without its static arguments."""
        return argument_names(args, kwargs, self._moving)

    def _split_static(self, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict]:
        if self._plain:
            return None, args, kwargs
        return split_static(self._what, self._parameters, self._options, args, kwargs)

    def _found(self, table: dict[tuple, Any], key: tuple, static: Any) -> Any:
        """What a table has for a key; raises where a static argument cannot be compared."""
        try:
            return table.get(key)
        except Exception:
            known = [k[2] for k in [*self._cache, *self._traces] if _is_full(k) and k[2]]
            error = static and incomparable(self._what, self._parameters, static, known)
            if error:
                raise error from None
            raise

    # -- staging --

    def _trace(
        self, types: tuple, tree: Any, static: Any, args: tuple, kwargs: dict,
        refs: list[Ref] | None = None,
    ) -> tuple[Program, Any, list[Any]]:
        """(program, tree of its results, captured outer tracers); cached where none are.

        refs: see `stage`.
        """
        key = (CURRENT.get().trace_key, tree, static, types)
        found = self._found(self._traces, key, static)
        if found is not None and (refs is not None or not found[2]):
            if refs is not None:
                refs.extend(found[2])
            return found[0], found[1], []
        out_tree: list[Any] = []
        begin = time.perf_counter()

        def flat(*leaves: Any) -> list[Any]:
            full = merged(static, *tree.unflatten(leaves))
            outs, treedef = flatten(called(f"jit of {self._name}", self._fun, *full))
            refuse_returned(f"jit of {self._name}: the function", outs)
            out_tree.append(treedef)
            return [self._checked_output(x, treedef, i) for i, x in enumerate(outs)]

        names = self._argument_names(args, kwargs)
        program, captured = stage(flat, types, name=self._name, names=names, refs=refs)
        if log_compiles.value:
            _log.warning("traced %s in %.1f ms", self._name, 1e3 * (time.perf_counter() - begin))
        self._was_traced = True
        if not captured and keepable(refs or ()):
            make_room(self._traces, CACHE_SIZE)
            self._traces[key] = (program, out_tree[0], tuple(refs or ()))
        return program, out_tree[0], captured

    def _checked_output(self, x: Any, tree: Any, i: int) -> Any:
        if isinstance(x, Value | bool | int | float | complex | np.generic):
            return x
        try:
            return EAGER.array(x)
        except TypeError as error:
            path = leaf_paths(tree.unflatten(range(tree.num_leaves)))[i]
            raise TypeError(
                f"jit of {self._name}: the result{path and ' at ' + path}: {error} A jitted "
                "function returns arrays and scalars, in pytrees."
            ) from None

    def _call_staged(
        self, leaves: list[Any], tree: Any, static: Any, args: tuple, kwargs: dict
    ) -> Any:
        """Under another transform: one `jit` equation, or the program pushed through it."""
        leaves = self._checked(leaves, args, kwargs, staged=True)
        ins = self._input_shardings(tree, len(leaves))
        if ins is not None:
            leaves = [_constrained(a, s) for a, s in zip(leaves, ins, strict=True)]
        types = tuple([type_of(a) for a in leaves])
        if explain_cache_misses.value:
            self._explain_trace((CURRENT.get().trace_key, tree, static, types), args, kwargs)
        refs: list[Ref] = []
        program, out_tree, captured = self._trace(types, tree, static, args, kwargs, refs)
        outs = call(*captured, *leaves, *values_of(refs), program=program)
        write_back(refs, outs[len(outs) - len(refs) :])
        outs = outs[: len(outs) - len(refs)]
        wanted = self._output_shardings(out_tree) if self._options.device is None else None
        if wanted is not None:
            outs = [_constrained(x, s) for x, s in zip(outs, wanted, strict=True)]
        return out_tree.unflatten(outs)

    # -- compiling --

    def _input_shardings(self, tree: Any, count: int) -> list[Any] | None:
        wanted = self._options.in_shardings
        if wanted is None:
            return None
        args, named = tree.unflatten(range(count))
        if named:
            raise ValueError(
                f"jit of {self._name}: in_shardings are for positional arguments, but "
                f"{listed(named)} came by name. Pass it by position, or leave in_shardings out and "
                "place it with `device_put`."
            )
        if isinstance(wanted, list):
            wanted = tuple(wanted)
        what = f"jit of {self._name}: in_shardings"
        found = broadcast_to_arguments(wanted, args, what, self._moving, is_sharding_leaf)
        return [as_boundary(s, what) for s in found]

    def _output_shardings(self, tree: Any) -> list[Any] | None:
        wanted = self._options.out_shardings
        if wanted is None:
            wanted = self._options.device
        if wanted is None:
            return None
        outs = tree.unflatten(range(tree.num_leaves))
        what = f"jit of {self._name}: out_shardings"
        found = broadcast_prefix(wanted, outs, what, is_sharding_leaf, "result")
        return [as_boundary(s, what) for s in found]

    def _donated(self, tree: Any, count: int) -> tuple[int, ...]:
        options = self._options
        if not options.donate_argnums and not options.donate_argnames:
            return ()
        args, kwargs = tree.unflatten(range(count))
        shifted = without_static(options.donate_argnums, options.static_argnums)
        picked = [args[i] for i in shifted if i < len(args)]
        picked += [kwargs[k] for k in options.donate_argnames if k in kwargs]
        return tuple(sorted(flatten(picked)[0]))

    def _traced(self, args: tuple, kwargs: dict) -> tuple[Traced, list[Any], Any]:
        """The staged call, with all that lowering needs; its leaves; its key without context."""
        static, args, kwargs = self._split_static(args, kwargs)
        leaves, tree = flatten((args, kwargs))
        leaves = self._checked(leaves, args, kwargs, abstract=True)
        return self._traced_flat(leaves, tree, static, args, kwargs), leaves, (tree, static)

    def _traced_flat(
        self, leaves: list[Any], tree: Any, static: Any, args: tuple, kwargs: dict
    ) -> Traced:
        sigs = [a._sig if a.__class__ is Array else _host_signature(a) for a in leaves]
        if self._options.device is not None:
            there = SingleDeviceSharding(self._options.device)
            sigs = [signature(s.type.update(spec=None, mesh=None), there, True) for s in sigs]
        ins = self._input_shardings(tree, len(leaves))
        types = tuple([s.type for s in sigs])
        names = self._argument_names(args, kwargs)
        if ins is not None:  # over Explicit axes they are a part of the types
            check_fit(ins, types, names, f"jit of {self._name}: in_shardings")
            pairs = zip(types, ins, strict=True)
            pairs = [(t, bare(s)) for t, s in pairs]
            types = tuple([t if s is None else with_sharding(t, s) for t, s in pairs])
        program, out_tree, captured = self._trace(types, tree, static, args, kwargs)
        if captured:
            raise escaped(captured[0])
        outs = self._output_shardings(out_tree)
        if outs is not None:
            results = ["result" + p for p in leaf_paths(out_tree.unflatten(range(len(outs))))]
            check_fit(outs, program.out_types, results, f"jit of {self._name}: out_shardings")
        return Traced(
            program,
            sigs,
            names,
            in_tree=tree,
            out_tree=out_tree,
            in_shardings=ins,
            out_shardings=outs,
            donated=self._donated(tree, len(leaves)),
            overrides=self._options.compiler_options,
            kept=tuple(range(len(sigs))) if self._options.keep_unused else used_arguments(program),
        )

    def _compile(
        self, key: tuple, leaves: list[Any], tree: Any, static: Any, args: tuple, kwargs: dict
    ) -> Callable:
        if explain_cache_misses.value:
            names = self._argument_names(args, kwargs)
            log_miss(self._fun, key, list(self._cache), names, self._before())
        try:
            traced = self._traced_flat(leaves, tree, static, args, kwargs)
        except NotThreaded:
            run = closing_over_refs(self, leaves, tree, static, args, kwargs)
        else:
            compiled = traced.lower().compile()
            run = compiled.runner()
            self._warn_of_donations(compiled.executable)
        make_room(self._cache, CACHE_SIZE)
        self._cache[key] = run
        if static is None and not kwargs and all(a.__class__ is Array for a in args):
            self._cache[(key[0], *[a._sig for a in args])] = run  # found the short way
        else:
            self._arrays_only = False
        return run

    def _explain_trace(self, key: tuple, args: tuple, kwargs: dict) -> None:
        """Logs why a call under a transform must be traced, if so."""
        if key in self._traces:
            return
        flat = [(*k[:3], *k[3]) for k in list(self._traces)]
        names = self._argument_names(args, kwargs)
        log_miss(self._fun, (*key[:3], *key[3]), flat, names, self._before())

    def _before(self) -> str:
        """What was done with this function, in words, where no call is known."""
        if self._traces:
            return "it has been traced before, under a transform or by `lower`, but not compiled."
        if self._was_traced:
            return "it has been called before, but what was known of it has been cleared."
        return ""

    def _warn_of_donations(self, exe: Any) -> None:
        unused = exe.unused_donations()
        if unused:
            types = exe.program.in_types
            shown = ", ".join(f"{exe.names[i]} of type {types[i].str_short(True)}" for i in unused)
            warnings.warn(
                f"jit of {self._name}: memory was donated that no result could use: {shown}. "
                "A result takes the memory of an argument with its shape, dtype and sharding.",
                UserWarning, stacklevel=5,
            )

    # -- stages --

    @hides_frames
    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """The staged program for these arguments (arrays or `ShapeDtypeStruct`s)."""
        return self._traced(args, kwargs)[0]

    @hides_frames
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """`trace(...)` lowered to StableHLO."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The types of the results, without compiling."""
        static, moving, named = self._split_static(args, kwargs)
        leaves, tree = flatten((moving, named))
        leaves = self._checked(leaves, moving, named, abstract=True)
        types = tuple([type_of(x) for x in leaves])
        program, out_tree, _ = self._trace(types, tree, static, moving, named)
        return shapes_of(program, out_tree)

    def clear_cache(self) -> None:
        """Forgets all traces and compiled programs of this function."""
        self._cache.clear()
        self._traces.clear()
        self._functional.clear()

    def _cache_size(self) -> int:
        return len(self._traces)


_alive: WeakSet[Jitted[Any, Any]] = WeakSet()


def forget_calls() -> None:
    """Forgets the traces and compiled programs of all jitted functions."""
    for jitted in snapshot(_alive):
        jitted.clear_cache()


def _leaf(x: Any, abstract: bool = False) -> Any:
    """An argument's leaf in a form that has a type: host values stay on the host."""
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex):
        type_of(x)  # raises for dtypes that there are not
        return x
    if isinstance(x, Tracer):
        if abstract and x.interpreter.alive:
            return ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.aval.weak_type)
        raise escaped(x)
    if isinstance(x, ShapeDtypeStruct):
        if abstract:
            return x
        raise TypeError(f"{x} has no data; types are for `trace`, `lower` and `eval_shape`.")
    if abstract and _is_like_type(x):
        return ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None))
    return EAGER.array(x)


def _is_like_type(x: Any) -> bool:
    """Whether an object says of an array what a `ShapeDtypeStruct` says, and has no data."""
    return hasattr(x, "shape") and hasattr(x, "dtype") and known(x) is x and not is_value(x)


def _host_signature(x: Any) -> Signature:
    sharding = getattr(x, "sharding", None)
    return signature(type_of(x), sharding, sharding is not None, getattr(x, "layout", None))


def _constrained(x: Any, sharding: Any) -> Any:
    sharding = bare(sharding)  # layouts are a matter of whole programs
    return x if sharding is None else sharding_constraint(x, sharding=sharding)


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
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compiles a function: staged once for each kind of arguments, run as one program.

    Args:
      fun: a function of arrays in pytrees; its Python code runs only while it is staged.
      in_shardings, out_shardings: shardings as prefixes of the trees of arguments and results;
        None: arguments stay as they are, results as the partitioner finds best.
      static_argnums, static_argnames: arguments that are part of the program; hashable.
      donate_argnums, donate_argnames: arguments whose memory the program may reuse; they are gone
        after the call, unless no result has their shape and dtype.
      keep_unused: whether arguments that the function does not use go to its devices all the same.
        By default they stay where they are, are not donated, and decide nothing.
      device, backend: where to run: a device, or a platform's name for its first one. Arguments
        are brought there. Prefer `in_shardings`.
      inline: call the function's body directly when traced.
      compiler_options: XLA options by name.

    Returns:
      A function of the same signature, with `trace`, `lower`, `eval_shape` and `clear_cache`.

    Raises:
      ValueError: at the call, if arguments are committed to different devices.
    """
    if fun is None:
        given = {k: v for k, v in locals().items() if k != "fun"}
        return functools.partial(jit, **given)
    check_function("jit", fun)
    options = Options()
    options.in_shardings = in_shardings
    options.out_shardings = out_shardings
    options.static_argnums, options.static_argnames = both(
        fun, static_argnums, static_argnames, "static"
    )
    options.donate_argnums, options.donate_argnames = both(
        fun, donate_argnums, donate_argnames, "donate"
    )
    check_options(fun, options, device=device, backend=backend)
    options.device = device if backend is None else devices(backend)[0]
    options.inline = inline
    options.keep_unused = keep_unused
    options.compiler_options = compiler_overrides(name_of(fun), compiler_options)
    return Jitted(fun, options)
