"""Errors as values: `checkify` makes a function also return which check failed in it.

For example:

    def f(x):
        checkify.check(x > 0, "x must be positive, is {}", x)
        return numpy.log(x)

    error, y = jit(checkify.checkify(f))(-1.0)
    error.get()      # 'x must be positive, is -1.0 (`check` failed)'
    error.throw()    # raises it
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.base.marks import merge, partition
from shardwise._src.control.call import call
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fingerprints import is_plain
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.debug.checked_programs import (
    DIV,
    ERROR,
    INDEX,
    NAN,
    USER,
    CheckError,
    Message,
    Place,
    check_op,
    checked_program,
    optional_check_op,
    text_of,
)
from shardwise._src.debug.host_callbacks import can_be_operand, check_format
from shardwise._src.jit.staging import Call, Stageable
from shardwise._src.messages.argument_names import flat_arguments, name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops.logical import eq
from shardwise._src.ops.random.bits import is_key, random_unwrap
from shardwise._src.refs.passing import with_refs_outside
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten, register_node
from shardwise._src.types.annotations import ArrayLike
from shardwise._src.types.dtypes import is_bool

ErrorCategory = str
user_checks = frozenset({USER})
nan_checks = frozenset({NAN})
div_checks = frozenset({DIV})
index_checks = frozenset({INDEX})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks
JaxRuntimeError = CheckError


class Error:
    """The first failure in a checked function, if any. A pytree of arrays.

    Under `vmap` each element has a separate error, and this contains all of them.
    """

    __slots__ = ("_code", "_slots", "_places")

    def __init__(self, code: Any, slots: tuple[Any, ...], places: tuple[Place, ...]):
        self._code, self._slots, self._places = code, slots, places

    def get(self) -> str | None:
        """The message, or None; for several errors, a line for each element with one."""
        codes, *slots = map(np.asarray, (self._code, *self._slots))
        return text_of(self._places, codes, slots) if codes.any() else None

    def get_exception(self) -> CheckError | None:
        """The error as an exception, with a note that names the line; None if absent."""
        text = self.get()
        if text is None:
            return None
        error = CheckError(text)
        numbers = sorted({int(n) for n in np.ravel(np.asarray(self._code)) if n})
        error.add_note("\n".join(f"checked at {self._places[n - 1].where()}" for n in numbers))
        return error

    def throw(self) -> None:
        """Raises the failure, if any.

        Raises:
          JaxRuntimeError (of this module): with the message of `get`.
        """
        error = self.get_exception()
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return "Error(of traced values)" if self._is_traced() else f"Error({self.get()})"

    def _is_traced(self) -> bool:
        return is_array(self._code) and not hasattr(self._code, "sharding")


def _from_parts(places: tuple[Place, ...], parts: Iterable[Any]) -> Error:
    code, *slots = parts
    return Error(code, tuple(slots), places)


register_node(Error, lambda e: ((e._code, *e._slots), e._places), _from_parts)
init_error = Error(np.int32(0), (), ())


def checkify(
    f: Callable[..., Any], errors: frozenset[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """A function that returns an `Error` and the result of `f`.

    Results are computed whether something failed or not, and refs are written. It may be jitted,
    mapped and differentiated, and so may `f`.

    Args:
      f: a function of arrays in pytrees, as for `jit`. Other arguments, and booleans of Python, are
        passed unchanged.
      errors: what to check: `user_checks` (calls of `check`), `nan_checks`, `div_checks`,
        `index_checks`; `float_checks`, `automatic_checks` and `all_checks` represent several.
    """
    if not callable(f):
        raise TypeError(f"checkify takes a function; got {f!r} of type {type(f).__name__}.")
    if not isinstance(errors, Iterable):
        raise TypeError(
            f"checkify of {name_of(f)}: errors takes an error set of this module, such as "
            f"`user_checks`; got {short_repr(errors)}."
        )
    unknown = set(errors) - all_checks
    if unknown:
        raise ValueError(
            f"checkify of {name_of(f)}: errors must be a union of the error sets of this module, "
            f"such as `user_checks`; got {sorted(map(str, unknown))}."
        )
    function = Stageable(f)

    @functools.lru_cache(32)
    def with_fixed(tree: Any, static: tuple[bool, ...], fixed: Any, kinds: Any) -> Any:
        @functools.wraps(f)
        def bound(*xs: Any) -> Any:
            return _called(f, *tree.unflatten(merge(static, fixed, xs)))

        return checkify(bound, errors)

    @functools.wraps(f)
    @hides_frames
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        leaves, tree = flat_arguments(args, kwargs, function.moving)
        if any(map(is_ref, leaves)):  # used unchanged, as if captured
            flat = functools.wraps(f)(lambda *xs: _called(f, *tree.unflatten(xs)))
            free = [x for x in leaves if not is_ref(x)]
            return checkify(with_refs_outside(flat, leaves), errors)(*free)
        static = [_is_static(x) for x in leaves]
        if any(static):
            traced, fixed = partition(leaves, static)
            return _with_fixed(with_fixed, tree, tuple(static), tuple(fixed))(*traced)
        leaves = function.checked(leaves, tree, staged=True)
        types = tuple([type_of(x) for x in leaves])
        staged = function.staged(Call(leaves, tree, None, types=types), refs=True)
        new, places = checked_program(staged.program, frozenset(errors))
        outs = call(*staged.inputs(leaves), program=new)
        end = len(staged.program.outvars)
        error = Error(outs[end], tuple(outs[end + 1 :]), places)
        return error, staged.out_tree.unflatten(staged.results(outs[:end]))

    return checked


def _with_fixed(make: Any, tree: Any, static: tuple[bool, ...], fixed: tuple[Any, ...]) -> Any:
    """The checked function of the other arguments, the same for equal fixed ones that are plain:
    others may change."""
    key = (tree, static, fixed, exact(fixed))
    return make(*key) if all(map(is_plain, fixed)) else make.__wrapped__(*key)


def _is_static(x: Any) -> bool:
    """Whether an argument is passed unchanged: it is not a number or array; or a boolean or, in a
    function that is traced, a number, which `static_argnums` of an outer `jit` may leave."""
    if isinstance(x, bool) or not can_be_operand(x):
        return True
    return isinstance(x, int | float | complex) and current().interpreter is not eval_trace()


def _called(f: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    return f(*args, **kwargs)


def check(pred: ArrayLike, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Records an error if `pred` does not hold; inside `checkify`.

    Args:
      pred: bool[].
      msg: a format as in `str.format`, for the other arguments, pytrees of arrays.

    Raises:
      JaxRuntimeError (of this module): immediately, if possible and `pred` does not hold.
      ValueError: if a program with a check is compiled outside `checkify`.
    """
    _check(pred, msg, fmt_args, fmt_kwargs, False)


def debug_check(pred: ArrayLike, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Like `check`, but does nothing outside `checkify`.

    A `while_loop` under `vmap` may contain it: rows that are done do not count, except inside of a
    `shard_map` in the loop. For separate errors of the rows, use `vmap(checkify(f))`.
    """
    _check(pred, msg, fmt_args, fmt_kwargs, True)


def require_condition(who: str, pred: Any) -> None:
    """Raises a TypeError if an argument of `who` is not one boolean."""
    t = type_of(pred)
    if t.shape or not is_bool(t.dtype):
        raise TypeError(
            f"{who} takes a boolean scalar as its first argument; got {t.str_short(True)}. Use "
            "`shardwise.numpy.all` or `shardwise.numpy.any`."
        )


def _check(pred: Any, msg: str, args: tuple, kwargs: dict, optional: bool) -> None:
    if not isinstance(msg, str):
        raise TypeError(
            f"checkify.check takes a message as its second argument; got {msg!r} of type "
            f"{type(msg).__name__}."
        )
    require_condition("checkify.check", pred)
    values, tree = flatten((args, kwargs))
    for x in values:
        if not can_be_operand(x):
            raise TypeError(
                f"checkify.check: arguments of the message must be pytrees of arrays; got {x!r} of "
                f"type {type(x).__name__}. Put it into the message itself."
            )
    check_format("checkify.check", msg, args, kwargs)
    values = [random_unwrap(x) if is_key(type_of(x)) else x for x in values]
    op = optional_check_op if optional else check_op
    op(pred, *values, message=Message(USER, msg, tree, optional), levels=0)


def check_error(error: Error) -> None:
    """Checks that an error from `checkify` is none: an inner error becomes an outer one."""
    if not isinstance(error, Error):
        raise TypeError(
            f"checkify.check_error takes an error that `checkify` returned; got {error!r} of type "
            f"{type(error).__name__}."
        )
    message = Message(ERROR, "of an error", error._places)
    check_op(eq(error._code, np.int32(0)), error._code, *error._slots, message=message, levels=0)
