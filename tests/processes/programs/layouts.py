"""Arrays over several processes with other memory layouts: put, moved, computed with."""

import itertools

import numpy as np
from checking import (
    COUNT,
    HERE,
    ORDERS,
    check,
    digest,
    equal,
    finish,
    numbers,
    over,
    raises,
    same,
    some,
)

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.layout import Format, Layout

COLUMNS, ROWS = Layout((1, 0)), Layout((0, 1))
ORDER = ORDERS[-1]
GRID = {"order": ORDER, "shape": (2, 2), "names": ("x", "y")}
PLACES = [
    over("x", order=ORDER),
    over(None, "x", order=ORDER),
    over(order=ORDER),
    over("y", "x", **GRID),
]
X = numbers(8, 4)
UNEVEN = numbers(7, 5)


def stored(x):
    """The format, which must match that of the runtime."""
    assert str(x._impl._pjrt_layout) == x.format.layout.as_text()
    return x.format


@check
def put():
    for value in (X, UNEVEN):
        for place in some(PLACES):
            x = sw.device_put(value, Format(COLUMNS, place))
            assert stored(x) == Format(COLUMNS, place)
            same(x, value)
            same(x + 1, value + 1), same(x.T @ x, value.T @ value), same(x[1:3], value[1:3])


@check
def moved():
    for place, there in some(itertools.product(PLACES, PLACES)):
        for value in some((X, UNEVEN)):
            x = sw.device_put(value, Format(COLUMNS, place))
            usual, kept = sw.device_put(x, there), sw.device_put(x, Format(COLUMNS, there))
            assert stored(usual) == Format(COLUMNS if there is place else ROWS, there)
            assert stored(kept) == Format(COLUMNS, there)
            same(usual, value), same(kept, value)


@check
def asked_for():
    rows, columns = PLACES[0], PLACES[1]
    f = sw.jit(
        lambda a: {"t": a.T, "n": a * 2},
        out_shardings={"t": Format(COLUMNS, columns), "n": Format(ROWS, rows)},
    )
    got = f(sw.device_put(X, rows))
    assert stored(got["t"]) == Format(COLUMNS, columns) and stored(got["n"]) == Format(ROWS, rows)
    same(got["t"], X.T), same(got["n"], X * 2)
    g = sw.jit(lambda a: a * 2, in_shardings=Format(COLUMNS, rows))
    assert 'mhlo.layout_mode = "{0,1}"' in g.lower(X).as_text()
    for value in (X, jnp.asarray(X), sw.device_put(X, Format(COLUMNS, rows))):
        same(g(value), X * 2)
    with raises(
        ValueError,
        "jit of <lambda>: a of type f32[8,4] is in the default layout, but "
        "in_shardings requires the layout Layout(major_to_minor=(1, 0)). Use `device_put` "
        "with a Format to change it, or None in in_shardings to accept it unchanged.",
    ):
        g(sw.device_put(X, rows))
    gone = sw.device_put(X, Format(COLUMNS, rows))
    h = sw.jit(lambda a: a + 1, donate_argnums=0, out_shardings=Format(COLUMNS, rows))
    same(h(gone), X + 1)
    assert gone.is_deleted()


@check
def chosen_results():
    """`Layout.AUTO`: all processes choose the same layouts; the compiled program reports them."""
    for place in PLACES:
        x = sw.device_put(X, place)
        f = sw.jit(lambda a: (a.T, a @ a.T, a.sum(0)), out_shardings=Format(Layout.AUTO))
        compiled = f.lower(x).compile()
        for run in (f, compiled):
            for y, wanted, chosen in zip(
                run(x), (X.T, X @ X.T, X.sum(0)), compiled.output_formats, strict=True
            ):
                assert stored(y) == chosen
                same(y, wanted)
        orders = [chosen.layout.major_to_minor for chosen in compiled.output_formats]
        print("chosen", orders, digest(f(x)[0]))


@check
def chosen_arguments():
    for place in PLACES[:2]:
        f = sw.jit(lambda a, b: a.T @ b, in_shardings=(Format(Layout.AUTO, place), None))
        compiled = f.lower(sw.ShapeDtypeStruct((8, 4), np.float32), X).compile()
        (chosen, second), _ = compiled.input_formats
        assert chosen.sharding is place and second.layout is ROWS
        x = sw.device_put(X, chosen)
        assert stored(x) == chosen
        for given in (x, X, sw.device_put(X, Format(COLUMNS, place)), sw.device_put(X, place)):
            same(f(given, X), X.T @ X), same(compiled(given, X), X.T @ X)
        print("arguments", chosen.layout.major_to_minor)


@check
def chosen_once_and_used_again():
    """A step whose state has the layouts that its program chose."""
    place = PLACES[0]
    auto = Format(Layout.AUTO, place)
    step = sw.jit(
        lambda w, x: (w - (w @ x) @ x.T / 100, w.sum()),
        in_shardings=(auto, None),
        out_shardings=(auto, None),
    )
    x = numbers(4, 3, seed=1) % 5
    compiled = step.lower(sw.ShapeDtypeStruct((8, 4), np.float32), x).compile()
    w = sw.device_put(X % 7, compiled.input_formats[0][0])
    wanted = X % 7
    for _ in range(3):
        w, total = compiled(w, x)
        assert stored(w) == compiled.output_formats[0]
        same(total, np.float32(wanted.sum()), close=True)
        wanted = wanted - (wanted @ x) @ x.T / 100
        same(w, wanted, close=True)


@check
def made_of_parts():
    there = Format(COLUMNS, PLACES[0])
    x = sw.make_array_from_callback((8, 4), there, X.__getitem__)
    assert stored(x) == there
    parts = [
        sw.device_put(np.asarray(s.data), Format(COLUMNS, s.data.sharding))
        for s in x.addressable_shards
    ]
    y = sw.make_array_from_single_device_arrays((8, 4), PLACES[0], parts)
    for got in (x, y, x.copy(), y * 1):
        same(got, X)


@check
def read_where_it_is_whole():
    x = sw.device_put(X, Format(COLUMNS, PLACES[2]))
    equal(np.asarray(x), X)
    assert x.tolist() == X.tolist() and x.format.layout == COLUMNS
    assert repr(x) == repr(jnp.asarray(X))
    y = sw.device_put(X, Format(COLUMNS, PLACES[0]))
    if COUNT > 1:
        assert repr(y).startswith("Array(shape=(8, 4), dtype=float32) sharded as "), repr(y)
    for at, shard in enumerate(y.addressable_shards):
        assert shard.device.process_index == HERE
        equal(np.asarray(y.addressable_data(at)), X[shard.index])


finish()
