"""`checkify`: the first failure, against jax; alone and under every transform."""

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.experimental import checkify
from tests.helpers.beside_jax import ours
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

SETS = (
    "user_checks",
    "nan_checks",
    "div_checks",
    "index_checks",
    "float_checks",
    "automatic_checks",
    "all_checks",
)


class Library:
    """One of the two libraries, with the parts that the functions below need."""

    def __init__(self, root: Any, numpy: Any, checks: Any):
        self.root, self.lax, self.np, self.checks = root, root.lax, numpy, checks

    def checked(self, f: Any, *args: Any, errors: str = "all_checks", jitted: bool = True) -> Any:
        g = self.checks.checkify(lambda *a: f(self, *a), errors=getattr(self.checks, errors))
        return (self.root.jit(g) if jitted else g)(*map(self.np.asarray, args))


OURS = Library(sw, jnp, checkify)
THEIRS = Library(jax, jax.numpy, jax_checkify)


def positive(lib: Any, x: Any) -> Any:
    lib.checks.check(x > 0, "x must be positive: {} and {y}", x, y=x * 2)
    return lib.np.sqrt(lib.np.abs(x)) + x


def in_scan(lib: Any, x: Any) -> Any:
    def body(c: Any, i: Any) -> Any:
        lib.checks.check(i != 7, "never")
        return c - 1, positive(lib, c)

    return lib.lax.scan(body, x, lib.np.arange(5))


def in_while(lib: Any, x: Any) -> Any:
    return lib.lax.while_loop(lambda c: c > -3, lambda c: positive(lib, c) * 0 + c - 1, x)


def in_cond(lib: Any, x: Any) -> Any:
    def other(x: Any) -> Any:
        lib.checks.check(x < 2, "{} is large", x)
        return x * 2

    return lib.lax.cond(x < 0, lambda x: positive(lib, x), other, x)


def in_jit(lib: Any, x: Any) -> Any:
    lib.checks.check(x < 3, "outside")
    y = lib.root.jit(lambda x: positive(lib, x))(x)
    lib.checks.check(x < 2, "after")
    return y


def in_grad(lib: Any, x: Any) -> Any:
    return lib.root.grad(lambda x: positive(lib, x))(x)


def in_custom(lib: Any, x: Any) -> Any:
    @lib.root.custom_jvp
    def f(x: Any) -> Any:
        return positive(lib, x)

    f.defjvp(lambda p, t: (f(*p), t[0]))
    return f(x)


def of_error(lib: Any, x: Any) -> Any:
    error, y = lib.checks.checkify(lambda x: positive(lib, x))(x)
    lib.checks.check_error(error)
    return y


FUNCTIONS = (positive, in_scan, in_while, in_cond, in_jit, in_grad, in_custom, of_error)


def same(got: Any, expected: Any) -> None:
    assert got[0].get() == expected[0].get()
    close(got[1], expected[1], 1e-6)


@pytest.mark.parametrize("f", everyday(FUNCTIONS, 2))
@pytest.mark.parametrize("x", [-2.0, 1.5, 2.5, 4.0])
@pytest.mark.parametrize("jitted", [False, True])
def test_as_in_jax(f: Any, x: Any, jitted: bool) -> None:
    x = np.float32(x)
    if f is of_error and x > 0:  # in this case jax uses an error with a separate code
        assert OURS.checked(f, x, jitted=jitted)[0].get() is None
        return
    same(*[lib.checked(f, x, errors="user_checks", jitted=jitted) for lib in (OURS, THEIRS)])


@pytest.mark.parametrize("f", everyday([positive, in_jit, in_grad, in_custom], 2))
def test_outside_of_vmap_and_inside(f: Any) -> None:
    xs = np.array([1.0, -2.0, 2.5], np.float32)
    found = []
    for lib in (OURS, THEIRS):
        g = lib.checks.checkify(lambda x, lib=lib: f(lib, x))
        found.append(lib.root.vmap(g)(lib.np.asarray(xs)))
    same(*found)
    error, _ = checkify.checkify(sw.vmap(lambda x: f(OURS, x)))(xs)
    assert error.get() == "x must be positive: -2.0 and -4.0 (`check` failed)"
    nested = sw.vmap(sw.vmap(checkify.checkify(lambda x: f(OURS, x))))
    error, _ = nested(np.stack([xs, np.abs(xs)]))
    lines = (error.get() or "").splitlines()
    assert lines[0] == "at mapped index 0, 1: x must be positive: -2.0 and -4.0 (`check` failed)"


def test_checks_in_loops_with_a_condition_for_each_row() -> None:
    def f(n: Any) -> Any:
        def body(n: Any) -> Any:
            checkify.check(n > 0, "done")
            return n - 1

        return sw.lax.while_loop(lambda n: n > 0, body, n)

    numbers = np.array([1, 3], np.int32)
    assert sw.vmap(checkify.checkify(f))(numbers)[0].get() is None
    assert message(ValueError, checkify.checkify(sw.vmap(f)), numbers) == (
        "[while_loop] under vmap: a batched condition runs until the last row is done, so a `check` "
        "in the loop would also fail for rows that are done. Use `vmap(checkify(f))` instead of "
        "`checkify(vmap(f))`: it checks each row by itself."
    )


def test_functions_of_booleans_are_traced_once_for_each() -> None:
    traced = []

    def f(x: Any, is_double: Any) -> Any:
        traced.append(is_double)
        return 2 * x if is_double else x

    checked = checkify.checkify(f)
    found = [float(checked(np.float32(3), b)[1]) for b in (True, False, True, False)]
    assert found == [6, 3, 6, 3] and traced == [True, False]


def test_functions_of_objects_see_their_changes() -> None:
    class Model:
        factor = 1

    checked, model = checkify.checkify(lambda m, x: x * m.factor), Model()
    assert float(checked(model, np.float32(5))[1]) == 5
    model.factor = 7
    assert float(checked(model, np.float32(5))[1]) == 35


def test_optional_checks_in_loops_with_a_condition_for_each_row() -> None:
    def f(n: Any) -> Any:
        def body(i: Any) -> Any:
            checkify.debug_check(i < 100, "too many")
            return i + 1

        return sw.lax.while_loop(lambda i: i < n, body, 0)

    numbers = np.array([3, 105], np.int32)
    for run in (sw.vmap(f), sw.jit(sw.vmap(f))):
        np.testing.assert_array_equal(run(numbers), numbers)
    error, found = sw.vmap(checkify.checkify(f))(numbers)
    assert error.get() == "at mapped index 1: too many (`check` failed)"
    np.testing.assert_array_equal(found, numbers)


def nested_in(form: str, check: Any) -> Any:
    """`check(i, n)` in a function inside of the body."""
    if form == "body":
        return check
    if form == "jit":
        return sw.jit(check)
    if form == "checkpoint":
        return sw.checkpoint(check)
    if form == "cond":
        return lambda i, n: sw.lax.cond(i >= 0, check, lambda i, n: None, i, n)
    if form == "while":
        return lambda i, n: sw.lax.fori_loop(0, i * 0 + 2, lambda k, c: check(i, n), None)
    return lambda i, n: sw.lax.scan(lambda c, _: (check(i, n), None), None, length=2)[0]


@pytest.mark.parametrize("form", ["body", "jit", "checkpoint", "cond", "scan", "while"])
def test_optional_checks_do_not_count_for_rows_that_are_done(form: str) -> None:
    def f(n: Any, limit: Any) -> Any:
        def check(i: Any, n: Any) -> None:
            checkify.debug_check((i < n) & (i < limit), "{} of {}", i, n)

        nested = nested_in(form, check)

        def body(i: Any) -> Any:
            nested(i, n)
            return i + 1

        return sw.lax.while_loop(lambda i: i < n, body, 0)

    numbers, limits = np.array([[3, 7], [5, 1]], np.int32), np.full((2, 2), 100, np.int32)
    low = np.array([[2, 100], [100, 1]], np.int32)
    both = sw.vmap(sw.vmap(f))
    other = sw.vmap(sw.vmap(f, in_axes=(0, None)), in_axes=(0, 0))
    for run in (both, sw.jit(both)):
        error, found = checkify.checkify(run)(numbers, limits)
        assert error.get() is None
        np.testing.assert_array_equal(found, numbers)
        error, found = checkify.checkify(run)(numbers, low)
        assert error.get() == "2 of 3 (`check` failed)"
        np.testing.assert_array_equal(found, numbers)
    error, found = checkify.checkify(other)(numbers, limits[0])
    assert error.get() is None
    np.testing.assert_array_equal(found, numbers)


def test_optional_checks_that_are_the_same_for_all_rows() -> None:
    def f(n: Any) -> Any:
        def body(c: Any) -> Any:
            sw.vmap(lambda k: checkify.debug_check(k < 3, "{}", k))(np.arange(3))
            return c + 1

        return sw.lax.while_loop(lambda i: i < n, body, 0)

    numbers = np.array([4, 0, 2], np.int32)
    error, found = checkify.checkify(sw.vmap(f))(numbers)
    assert error.get() is None
    np.testing.assert_array_equal(found, numbers)


def test_vmap_of_loops_and_branches() -> None:
    xs = np.array([2.0, -2.0], np.float32)
    for f in (in_scan, in_cond, in_while):
        error, _ = sw.vmap(checkify.checkify(lambda x, f=f: f(OURS, x)))(xs)
        alone = [checkify.checkify(lambda x, f=f: f(OURS, x))(x)[0].get() for x in xs]
        lines = [f"at mapped index {i}: {text}" for i, text in enumerate(alone) if text]
        assert error.get() == "\n".join(lines)


def test_derivatives_of_checked_functions() -> None:
    def loss(x: Any) -> Any:
        error, y = checkify.checkify(lambda x: positive(OURS, x))(x)
        return y, error

    (_, error), g = sw.value_and_grad(loss, has_aux=True)(np.float32(4.0))
    assert float(g) == 1.25 and error.get() is None
    (_, error), _ = sw.jit(sw.value_and_grad(loss, has_aux=True))(np.float32(-4.0))
    assert error.get() == "x must be positive: -4.0 and -8.0 (`check` failed)"


def quotient(lib: Any, x: Any, y: Any) -> Any:
    return x / y


AUTOMATIC: list[tuple[Any, tuple[Any, ...]]] = [
    (lambda lib, x: lib.np.log(x), (np.float32(-1),)),
    (lambda lib, x: lib.np.log(x), (np.float32(1),)),
    (lambda lib, x: lib.np.sin(x).sum(), (np.array([1, np.inf], np.float32),)),
    (quotient, (np.array([1, 2], np.float32), np.array([1, 0], np.float32))),
    (lambda lib, x, y: x // y, (np.array([1, 2], np.int32), np.array([1, 0], np.int32))),
    (lambda lib, x, i: x[i], (np.arange(5.0), np.int32(7))),
    (lambda lib, x, i: x[i], (np.arange(5.0), np.int32(-5))),
    (lambda lib, x, i: x[i], (np.arange(5.0), np.int32(-6))),
    (lambda lib, x, i: x[:, i], (np.ones((2, 3)), np.array([0, 3], np.int32))),
    (lambda lib, x, i: x[i, i], (np.ones((4, 3)), np.array([0, 3], np.int32))),
    (lambda lib, x, i: x.at[i].set(1.0), (np.arange(5.0), np.int32(9))),
    (lambda lib, x, i: x.at[i].add(1.0), (np.arange(5.0), np.array([0, 4], np.int32))),
    (lambda lib, x: x[7], (np.arange(5.0),)),
    (lambda lib, x: x[-7], (np.arange(5.0),)),
    (lambda lib, x: x.at[7].set(1.0), (np.arange(5.0),)),
    (lambda lib, x: x.at[7].get(mode="fill", fill_value=2.0), (np.arange(5.0),)),
    (lambda lib, x, i: x.at[i].get(mode="clip"), (np.arange(5.0), np.array([0, 9], np.int32))),
    (lambda lib, x, i: x.at[i].add(1.0, mode="clip"), (np.arange(5.0), np.int32(9))),
    (lambda lib, x, i: lib.root.vmap(lambda i: x[i])(i), (np.arange(5.0), np.array([0, 9]))),
    (lambda lib, x, i: lib.root.vmap(lambda x, i: x[i])(x, i), (np.ones((2, 3)), np.array([0, 9]))),
    (
        lambda lib, x: lib.lax.reduce(x, np.float32(0), lambda a, b: lib.np.log(a) + b, (0,)),
        (np.array([-1.0, 2.0]),),
    ),
    (lambda lib, x: lib.root.checkpoint(lambda x: lib.np.log(x))(x), (np.float32(-1),)),
    (lambda lib, x, i: lib.lax.dynamic_slice(x, (i,), (3,)), (np.arange(5.0), np.int32(3))),
    (lambda lib, x, i: lib.lax.dynamic_slice(x, (i,), (3,)), (np.arange(5.0), np.int32(2))),
    (lambda lib, x, i: lib.lax.dynamic_update_slice(x, x[:2], (i,)), (np.arange(5.0), np.int32(4))),
]


@pytest.mark.parametrize("number", everyday(range(len(AUTOMATIC)), 4))
@pytest.mark.parametrize("errors", ["automatic_checks", "user_checks"])
def test_automatic_checks_as_in_jax(number: int, errors: str) -> None:
    f, args = AUTOMATIC[number]
    args = tuple(a.astype(np.float32) if a.dtype == np.float64 else a for a in args)
    same(*[lib.checked(f, *args, errors=errors) for lib in (OURS, THEIRS)])


def test_each_set_checks_its_own() -> None:
    def f(x: Any, i: Any) -> Any:
        checkify.check(x.sum() < 0, "sum")
        return jnp.log(-x)[i] / (x[0] - x[0])

    kinds = {
        "user_checks": "sum (`check` failed)",
        "nan_checks": "nan generated by primitive: log.",
        "div_checks": "division by zero",
        "index_checks": "out-of-bounds indexing for array of shape (2,): index 5 is out of bounds "
        "for axis 0 with size 2. ",
        "float_checks": "nan generated by primitive: log.",
        "automatic_checks": "nan generated by primitive: log.",
        "all_checks": "sum (`check` failed)",
    }
    x, i = np.ones(2, np.float32), np.int32(5)
    for name in SETS:
        assert getattr(checkify, name) <= checkify.all_checks
        error, _ = checkify.checkify(f, errors=getattr(checkify, name))(x, i)
        assert error.get() == kinds[name]
    nothing, _ = checkify.checkify(f, errors=frozenset())(x, i)
    assert nothing.get() is None and repr(nothing) == "Error(None)"


@pytest.mark.parametrize("size", [8, 5])
@pytest.mark.parametrize("spec", [(), ("x",), (("x", "y"),)])
def test_sharded_values(size: int, spec: Any) -> None:
    f = sw.jit(checkify.checkify(lambda x, y: x / y, errors=checkify.float_checks))
    good = np.ones(size, np.float32)
    assert f(ours(good, *spec), ours(good, *spec))[0].get() is None
    error, out = f(ours(good, *spec), ours(good * 0, *spec))
    assert error.get() == "division by zero" and np.isinf(np.asarray(out)).all()


def test_errors_are_thrown_with_their_line() -> None:
    def f(x: Any) -> Any:
        checkify.check(x > 0, "no")  # here
        return x

    error, _ = checkify.checkify(f)(-1.0)
    with pytest.raises(checkify.JaxRuntimeError) as e:
        error.throw()
    assert str(e.value) == "no (`check` failed)"
    _, note = e.value.__notes__
    assert re.fullmatch(rf"checked at {re.escape(__file__)}:\d+ \(f\)", note)
    with open(__file__) as file:
        line = next(i for i, text in enumerate(file, 1) if text.rstrip().endswith("# here"))
    assert f":{line} " in note
    checkify.checkify(f)(1.0)[0].throw()
    checkify.init_error.throw()


def test_checks_outside_of_checkify() -> None:
    positive(OURS, np.float32(1))
    assert (
        message(checkify.JaxRuntimeError, lambda: positive(OURS, np.float32(-1)))
        == "x must be positive: -1.0 and -2.0 (`check` failed)"
    )
    with pytest.raises(checkify.JaxRuntimeError, match=r"-2.0 and -4.0"):
        sw.vmap(lambda x: positive(OURS, x))(np.array([1, -2], np.float32))
    assert message(ValueError, lambda: sw.jit(lambda x: positive(OURS, x))(np.float32(1))) == (
        "checkify.check with the message 'x must be positive: {} and {y}' is in a compiled "
        "program, which cannot raise exceptions. Wrap the function in "
        "`shardwise.experimental.checkify.checkify`, inside or outside of jit: it returns the "
        "error as a value."
    )


def test_debug_checks_are_for_checkify_only() -> None:
    def f(x: Any) -> Any:
        checkify.debug_check(x > 0, "no")
        return x

    assert float(f(-1.0)) == float(sw.jit(f)(-1.0)) == -1
    assert checkify.checkify(f)(-1.0)[0].get() == "no (`check` failed)"


def test_nothing_is_staged_twice() -> None:
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return positive(OURS, x)

    g = checkify.checkify(f)
    for x in (1.0, -1.0, 2.0):
        g(np.float32(x))
        sw.jit(g)(np.float32(x))
    assert count == 1
    check_program(sw.make_jaxpr(lambda x: g(x)[1])(1.0))


@pytest.mark.parametrize("jitted", [False, True])
def test_values_in_messages_are_arrays(jitted: bool) -> None:
    def checked(lib: Any, x: Any) -> Any:
        lib.checks.check(x[0] > 0, "{x!r} {tree} {0:.2f}", x[1], x=x, tree={"a": x[2] > 1})
        return x

    x = np.arange(3.0, dtype="f")
    mine, theirs = (lib.checked(checked, x, jitted=jitted) for lib in (OURS, THEIRS))
    assert mine[0].get() == theirs[0].get()


def test_keys_in_messages() -> None:
    def f(x: Any, key: Any) -> Any:
        checkify.check(x > 0, "x={x}, key={}", key, x=x)
        return x

    key = sw.random.key(7)
    for run in (checkify.checkify(f), sw.jit(checkify.checkify(f))):
        assert run(1.0, key)[0].get() is None
        assert run(-1.0, key)[0].get() == "x=-1.0, key=[0 7] (`check` failed)"
    with pytest.raises(checkify.JaxRuntimeError, match=r"x=-1.0, key=\[0 7\]"):
        f(np.float32(-1), key)


def test_arguments_are_checked() -> None:
    def refused(kind: Any, text: str, f: Any) -> None:
        assert message(kind, f) == text

    x = jnp.ones(2)
    refused(
        TypeError,
        "checkify.check takes a boolean scalar as its first argument; got bool[2]. "
        "Use `shardwise.numpy.all` or "
        "`shardwise.numpy.any`.",
        lambda: checkify.check(x > 0, "m"),
    )
    refused(
        TypeError,
        "checkify.check takes a message as its second argument; got 3 of type int.",
        lambda: checkify.check(True, 3),
    )  # pyright: ignore[reportArgumentType]
    refused(
        TypeError,
        "checkify.check: arguments of the message must be pytrees of arrays; got "
        "'s' of type str. Put it into the message "
        "itself.",
        lambda: checkify.check(True, "{}", "s"),
    )
    refused(
        IndexError,
        "checkify.check: the format '{} {}' needs argument number 1, but was "
        "given 1 positional argument and no names.",
        lambda: checkify.check(True, "{} {}", 1),
    )
    refused(
        TypeError, "checkify takes a function; got 3 of type int.", lambda: checkify.checkify(3)
    )  # pyright: ignore[reportArgumentType]
    refused(
        ValueError,
        "checkify of ones: errors must be a union of the error sets of this "
        "module, such as `user_checks`; got "
        "['all'].",
        lambda: checkify.checkify(jnp.ones, frozenset({"all"})),
    )
    refused(
        TypeError,
        "checkify.check_error takes an error that `checkify` returned; got None of type NoneType.",
        lambda: checkify.check_error(None),
    )  # pyright: ignore[reportArgumentType]


def test_what_cannot_be_looked_into() -> None:
    def f(b: Any) -> Any:
        def matvec(x: Any) -> Any:
            checkify.check(x.sum() < 9, "m")
            return x * 2

        return lax.custom_linear_solve(matvec, b, lambda mv, b: b / 2, symmetric=True)

    with pytest.raises(
        NotImplementedError,
        match=r"^checkify does not support checks in the "
        r"functions of ",
    ):
        checkify.checkify(f)(jnp.ones(2))


def test_small_integers_as_indices() -> None:
    f = checkify.checkify(lambda x, i: lax.dynamic_slice(x, (i,), (1,)), checkify.index_checks)
    x = np.ones(300, np.float32)
    for i in (np.int8(100), np.uint8(255)):
        assert f(x, i)[0].get() is None
    assert f(x, np.int8(-1))[0].get() is None  # counted from the end
    assert f(x[:100], np.uint8(200))[0].get() == (
        "out-of-bounds indexing for array of shape (100,): index 200 is out of bounds for axis 0 "
        "with size 100. "
    )


def with_refs(lib: Any, x: Any) -> Any:
    local, outer = lib.root.new_ref(x), lib.root.new_ref(lib.np.zeros(3, np.float32))

    def body(c: Any, i: Any) -> Any:
        outer[i] = lib.np.sqrt(c)
        local[...] -= 1.5
        lib.checks.check(local[...] > -2, "{} at {}", local[...], i)
        return local[...], outer[i]

    _, ys = lib.lax.scan(body, x, lib.np.arange(4))
    return ys.sum() + outer[...].sum() * 0


@pytest.mark.parametrize("errors", ["user_checks", "index_checks", "nan_checks"])
@pytest.mark.parametrize("x", [1.0, 2.0, 9.0])
def test_of_functions_that_use_refs(errors: str, x: float) -> None:
    def plain(lib: Any, x: Any) -> Any:  # jax does not check indices of refs
        cs = [x - 1.5 * i for i in range(4)]
        for i, c in enumerate(cs):
            lib.np.sqrt(c)
            lib.checks.check(c - 1.5 > -2, "{} at {}", c - 1.5, lib.np.asarray(i))
        return None

    error, _ = OURS.checked(with_refs, np.float32(x), errors=errors)
    if errors == "index_checks":
        assert error.get() == (
            "out-of-bounds indexing for array of shape (3,): index 3 is out of bounds for axis 0 "
            "with size 3. "
        )
    else:
        assert error.get() == THEIRS.checked(plain, np.float32(x), errors=errors)[0].get()


@pytest.mark.parametrize("jitted", [False, True])
def test_refs_of_callers_are_written(jitted: bool) -> None:
    passed, outer = sw.new_ref(np.zeros(2, np.float32)), sw.new_ref(np.float32(1))

    def f(ref: Any, x: Any) -> Any:
        ref[0] = x
        checkify.check(ref[0] < outer[...], "{} is not below {}", ref[0], outer[...])
        outer[...] += 1
        return ref[0] * 2

    g = checkify.checkify(f)
    g = sw.jit(g) if jitted else g
    error, y = g(passed, np.float32(3))
    assert (error.get(), y) == ("3.0 is not below 1.0 (`check` failed)", 6)
    assert (passed[...].tolist(), outer[...]) == ([3.0, 0.0], 2)
    error, y = g(passed, np.float32(1.5))
    assert (error.get(), y, outer[...]) == (None, 3, 3)


def test_derivatives_of_checked_functions_with_refs() -> None:
    def f(x: Any) -> Any:
        r = sw.new_ref(x)
        error, _ = checkify.checkify(lambda: r.set(jnp.sin(r[...])), checkify.nan_checks)()
        return r[...] * 2, error

    g, error = sw.jit(sw.grad(f, has_aux=True))(np.float32(0.5))
    assert float(g) == pytest.approx(2 * np.cos(0.5)) and error.get() is None


def test_shard_maps_without_checks_communicate_nothing() -> None:
    mesh = sw.make_mesh((8,), ("i",))
    double = sw.shard_map(lambda x: x * 2, mesh=mesh, in_specs=sw.P("i"), out_specs=sw.P("i"))
    text = sw.jit(checkify.checkify(double)).lower(np.ones(8, np.float32)).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text


@pytest.mark.parametrize("errors", [checkify.user_checks, checkify.all_checks], ids=["user", "all"])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_derivatives_of_checked_functions_are_those_of_their_rules(kind, errors, jitted) -> None:
    def sine(x):
        checkify.check(x < 2, "too large: {}", x)
        return jnp.sin(x)

    f = getattr(sw, kind)(sine)
    if kind == "custom_jvp":
        f.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 100 * tangents[0]))
    else:
        f.defvjp(lambda x: (jnp.sin(x), None), lambda _, ct: (100 * ct,))

    def checked(x):
        error, y = checkify.checkify(f, errors=errors)(x)
        return y, error

    run = sw.grad(checked, has_aux=True)
    run = sw.jit(run) if jitted else run
    slope, error = run(np.float32(1))
    assert float(slope) == 100 and error.get() is None
    slope, error = run(np.float32(3))
    assert float(slope) == 100 and "too large: 3.0" in error.get()


@pytest.mark.parametrize("library", ["ours", "jax"])
def test_arguments_that_are_not_arrays(library):
    root, checks = (sw, checkify) if library == "ours" else (jax, jax_checkify)

    def f(x, name, n):
        if name == "log" and n:
            checks.check(x > 0, "x must be positive")
        return x

    checked = checks.checkify(f)
    assert checked(-1.0, "log", True)[0].get().startswith("x must be positive")
    assert checked(-1.0, "exp", True)[0].get() is None
    assert root.jit(checked, static_argnums=(1, 2))(-1.0, "log", 3)[0].get() is not None


def test_a_division_by_zero_is_not_a_nan():
    x = np.zeros(2, np.float32)
    for library in (OURS, THEIRS):
        error, _ = library.checked(lambda L, x: x / x, x)
        assert error.get() == "division by zero"
