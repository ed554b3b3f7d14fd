"""Calls of jitted and mapped functions with refs, as calls with values that are written back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardwise._src.arguments.float0_partition import apart
from shardwise._src.base.caches import make_room
from shardwise._src.base.positions import put
from shardwise._src.core.program import eval_program
from shardwise._src.jit.options import FromProgram, Options
from shardwise._src.jit.stages import Traced
from shardwise._src.jit.staging import Call, Stageable, Staged
from shardwise._src.jit.static_arguments import split_static
from shardwise._src.messages.argument_names import argument_names, parameters_of
from shardwise._src.messages.formatting import pluralize
from shardwise._src.refs.passing import functional, lent, reject_parts
from shardwise._src.refs.refs import Ref, is_ref, reject_returned, values_of, write_back
from shardwise._src.runtime.pytree import flatten

FUNCTIONS = 256  # cached per jitted function, by positions of refs


Run = Callable[[tuple, dict], Any]  # a function of positional and named arguments


def has_refs(tree: Any) -> bool:
    try:
        return any(map(is_ref, flatten(tree)[0]))
    except (TypeError, ValueError):  # the call itself says what cannot be flattened, and where
        return False


def through_refs(
    jit: Callable[[Callable, Options], Callable], function: Stageable, call: Call
) -> Any:
    """A call of a jitted function with refs among its arguments.

    jit: creates the jitted function of values that replaces it.
    """
    args, kwargs = call.arguments()
    inner, at = _of_values(jit, function, args, kwargs)
    return _lending(function, at, lambda args, kwargs: inner(*args, **kwargs), args, kwargs)


def traced_through_refs(
    jit: Callable[[Callable, Options], Any], function: Stageable, args: tuple, kwargs: dict
) -> Traced:
    """The traced function of values in place of refs; calls of its later stages take the refs."""
    inner, at = _of_values(jit, function, args, kwargs)
    leaves, tree = flatten((args, kwargs))
    full, named = tree.unflatten(put(leaves, at, values_of([leaves[i] for i in at])))
    traced = inner.trace(*full, **named)
    layer = functools.partial(_lending, function, at)
    return replace(traced, layers=(*traced.layers, layer))


def _of_values(
    jit: Callable[[Callable, Options], Any], function: Stageable, args: tuple, kwargs: dict
) -> tuple[Any, tuple[int, ...]]:
    """The jitted function of values in place of refs, and which leaves of the arguments are refs.

    It returns the result, and the last values.
    """
    leaves, tree = flatten((args, kwargs))
    at = tuple([i for i, x in enumerate(leaves) if is_ref(x)])
    kinds = tuple([leaves[i].kind for i in at])
    inner = function.with_values.get((tree, at, kinds))
    if inner is None:
        make_room(function.with_values, FUNCTIONS)
        pure = functional(function.fun, function.what, at, kinds)
        inner = jit(pure, _with_last_values(function.options))
        function.with_values[tree, at, kinds] = inner
    return inner, at


def _lending(function: Stageable, at: Sequence[int], run: Run, args: tuple, kwargs: dict) -> Any:
    """The result of `run` with the values of the refs among the arguments, which it replaces."""
    leaves, tree = flatten((args, kwargs))
    given = [i for i, x in enumerate(leaves) if is_ref(x)]
    if given != [*at]:
        raise TypeError(f"{function.what}: the program takes {pluralize(len(at), 'ref')}.")
    passed = [leaves[i] for i in at]
    names = _names(function.fun, args, kwargs)
    with lent(passed, function.what, lambda: [names()[i] for i in at]) as values:
        result, last = run(*tree.unflatten(put(leaves, at, values)))
    write_back(passed, last)
    return result


def closing_over_refs(
    jit: Callable[[Callable, Options], Callable], function: Stageable, call: Call, staged: Staged
) -> Callable[[Sequence[Any]], Any]:
    """The function that runs calls like this one, whose program accesses captured refs."""
    tree, static, refs = call.tree, call.static, staged.refs  # not the call, which contains arrays
    inner = _of_captured(jit, function, call, staged)

    def run(leaves: Sequence[Any]) -> Any:
        args, kwargs = Call(leaves, tree, static).arguments()
        return _with_captured(refs, lambda args, kwargs: inner(*args, **kwargs), args, kwargs)

    return run


def traced_closing_over_refs(
    jit: Callable[[Callable, Options], Any], function: Stageable, call: Call, staged: Staged
) -> Traced:
    """The traced function of the values of captured refs; calls of its later stages pass them."""
    args, kwargs = call.arguments()
    inner = _of_captured(jit, function, call, staged)
    traced = inner.trace(*args, values_of(staged.refs), **kwargs)
    layer = functools.partial(_with_captured, staged.refs)
    return replace(traced, layers=(*traced.layers, layer))


def _of_captured(
    jit: Callable[[Callable, Options], Any], function: Stageable, call: Call, staged: Staged
) -> Any:
    """The jitted function that takes values of captured refs after its positional arguments, and
    returns the result and their last values."""
    options, count = function.options, len(staged.refs)

    @functools.wraps(function.fun)
    def pure(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        _, moving, named = split_static(options, args[:-1], kwargs)
        leaves = apart(*flatten((moving, named)))[0]
        outs = eval_program(staged.program, [*leaves, *args[-1]])
        own = len(outs) - count
        return staged.out_tree.unflatten(outs[:own]), outs[own:]

    given = len(call.arguments()[0])
    return jit(pure, _with_first_values(_with_last_values(options), given))


def _with_captured(refs: Sequence[Ref], run: Run, args: tuple, kwargs: dict) -> Any:
    result, last = run((*args, values_of(refs)), kwargs)
    write_back(refs, last)
    return result


def without_last_values(traced: Traced) -> Any:
    """The types of the results of a traced function, in their pytree, without those of refs."""
    found = traced.out_info
    for _ in traced.layers:
        found = found[0]
    return found


def _with_last_values(options: Options) -> Options:
    """The options of a function that also returns values of refs, which keep their shardings."""
    outs = options.out_shardings
    if outs is None or isinstance(outs, FromProgram):
        return options
    return options._replace(out_shardings=(outs, None))


def _with_first_values(options: Options, count: int) -> Options:
    """The options of a function that takes values of refs after `count` positional arguments."""
    # Those of arguments that are passed by name, or have their default, are other positions now.
    static = tuple([i for i in options.static_argnums if i < count])
    donated = tuple([i for i in options.donate_argnums if i < count])
    options = options._replace(static_argnums=static, donate_argnums=donated)
    ins = options.in_shardings
    if ins is None:
        return options
    moving = count - len(static)
    each = ins if isinstance(ins, tuple | list) else (ins,) * moving
    return options._replace(in_shardings=(*each, None))


def _names(fun: Callable, args: tuple, kwargs: dict) -> Callable[[], list[str]]:
    return lambda: argument_names(args, kwargs, parameters_of(fun))


def mapped_with_refs(
    vmap: Callable,
    fun: Callable,
    name: str,
    args: tuple,
    kwargs: dict,
    dims: Sequence[Any],
    out_axes: Any,
    options: dict[str, Any],
) -> Any:
    """`vmap(fun)(*args, **kwargs)` with refs among the arguments.

    dims: of the leaves. Refs that are not mapped are used unchanged, as if captured.
    """
    reject_parts(f"vmap of {name}", (args, kwargs))
    leaves, tree = flatten((args, kwargs))
    at = [i for i, x in enumerate(leaves) if is_ref(x) and dims[i] is not None]
    free = [i for i, x in enumerate(leaves) if not is_ref(x)]
    refs = [leaves[i] for i in at]

    def flat(*values: Any) -> tuple[Any, list[Any]]:
        inner = list(leaves)
        for i, x in zip(free, values, strict=False):
            inner[i] = x
        own = [Ref(x, kind=r.kind) for x, r in zip(values[len(free) :], refs, strict=True)]
        for i, r in zip(at, own, strict=True):
            inner[i] = r
        full, named = tree.unflatten(inner)
        result = fun(*full, **named)
        reject_returned(f"vmap of {name}: the function", flatten(result)[0])
        return result, values_of(own)

    flat.__name__ = name
    names = _names(fun, args, kwargs)
    picked = [dims[i] for i in at]
    with lent(refs, f"vmap of {name}", lambda: [names()[i] for i in at]) as values:
        mapped = vmap(flat, (*[dims[i] for i in free], *picked), (out_axes, picked), **options)
        result, last = mapped(*[leaves[i] for i in free], *values)
    write_back(refs, last)
    return result
