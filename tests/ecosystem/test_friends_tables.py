"""Columns of pandas, polars and pyarrow become arrays, and arrays become columns."""

import datetime
import subprocess
import sys

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.errors import fails
from tests.helpers.placed import placed

WHY = "pip install 'shardwise[friends]'"
pd = pytest.importorskip("pandas", reason=WHY)
pl = pytest.importorskip("polars", reason=WHY)
pa = pytest.importorskip("pyarrow", reason=WHY)
DAY = datetime.datetime(2020, 1, 1)
NAN = float("nan")
HOLDS = "Arrays hold booleans, integers, floating-point or complex numbers."
DATES = "it holds dates. " + HOLDS + " Convert them to integers with x.astype('int64')."
MISSING = "cannot be an element of an array. Use nan for a missing number."
TEXT = (
    "asarray: array elements must be numbers or booleans; got 'x' of type str. Encode strings as "
    "integers first."
)


def column(library, values, **how):
    made = {"pandas": pd.Series, "polars": pl.Series, "pyarrow": pa.array}[library]
    return made(values, **how)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_come_in(library):
    for values, dtype in (
        ([1.0, 2.5], jnp.float32),
        ([1, 2], jnp.int32),
        ([True, False], jnp.bool_),
        ([1.0, None, 3.0], jnp.float32),
        ([], jnp.float32),
    ):
        x = jnp.asarray(column(library, values, **({} if values else EMPTY[library])))
        assert x.dtype == dtype
        np.testing.assert_array_equal(x, [NAN if v is None else v for v in values])
    host = np.arange(5, dtype=np.int16)
    assert jnp.asarray(column(library, host)).dtype == jnp.int16
    column_of_ours = column(library, host.astype(np.float32))
    np.testing.assert_array_equal(sw.jit(lambda c: c * 2)(column_of_ours), host * 2)
    np.testing.assert_array_equal(jnp.sin(column_of_ours), jnp.sin(host))
    np.testing.assert_array_equal(sw.device_put(column_of_ours), host)


EMPTY = {
    "pandas": {"dtype": "float64"}, "polars": {"dtype": pl.Float64},
    "pyarrow": {"type": pa.float64()},
}  # fmt: skip


def test_frames_and_other_columns_come_in():
    whole = [[1.0, 3.0], [2.0, 4.0]]
    frame = {"a": [1.0, 2.0], "b": [3, 4]}
    for table in (pd.DataFrame(frame), pl.DataFrame(frame), pa.table(frame)):
        np.testing.assert_array_equal(jnp.asarray(table), whole)
    np.testing.assert_array_equal(jnp.asarray(pd.DataFrame(frame).to_numpy()), whole)
    for other in (
        pd.array([1, None], dtype="Int64"),
        pd.Series([1, None], dtype="double[pyarrow]"),
        pa.chunked_array([[1.0], [None]]),
        pd.Series([1.0, None], dtype=object).astype(float),
    ):
        np.testing.assert_array_equal(jnp.asarray(other), [1, NAN])
    lists = pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int32, 2))
    np.testing.assert_array_equal(jnp.asarray(lists), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(jnp.arange(4)[pd.Series([2, 0])], [2, 0])
    np.testing.assert_array_equal(jnp.arange(2)[pl.Series([True, False])], [0])


REFUSED = {
    "texts": (lambda: pd.Series(["x"]), TypeError, TEXT),
    "texts of Arrow": (lambda: pa.array(["x"]), TypeError, TEXT),
    "categories": (lambda: pd.Series(["x"], dtype="category"), TypeError, TEXT),
    "a frame with texts": (lambda: pd.DataFrame({"t": ["x"], "n": [1]}), TypeError, TEXT),
    "dates of pandas": (
        lambda: pd.Series([DAY], dtype="datetime64[ns]"), TypeError,
        "asarray: dtype datetime64[ns] is not supported: " + DATES,
    ),
    "dates of polars": (
        lambda: pl.Series([DAY]), TypeError,
        "asarray: dtype datetime64[us] is not supported: " + DATES,
    ),
    "dates of Arrow": (
        lambda: pa.array([DAY.date()]), TypeError,
        "asarray: dtype datetime64[D] is not supported: " + DATES,
    ),
    "durations": (
        lambda: pl.Series([datetime.timedelta(1)]), TypeError,
        "asarray: dtype timedelta64[us] is not supported: "
        + DATES.replace("dates", "time differences"),
    ),
    "missing truth of pandas": (
        lambda: pd.Series([True, None], dtype="boolean"), ValueError, "asarray: <NA> " + MISSING,
    ),
    "missing truth of polars": (
        lambda: pl.Series([True, None]), ValueError, "asarray: None " + MISSING,
    ),
    "missing truth of Arrow": (
        lambda: pa.array([True, None]), ValueError, "asarray: None " + MISSING,
    ),
    "nothing but missing": (lambda: pa.nulls(2), ValueError, "asarray: None " + MISSING),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_columns_that_are_no_numbers(name):
    make, kind, message = REFUSED[name]
    fails(kind, message, lambda: jnp.asarray(make()))


def test_memory_is_shared_where_it_can_be():
    made = pa.array(range(4096), type=pa.float32())  # Arrow's memory is aligned
    x = sw.dlpack.from_dlpack(made)
    address = made.buffers()[1].address
    assert (x.unsafe_buffer_pointer() == address) == (address % 64 == 0)
    del made
    assert x.sum() == 4095 * 2048


def test_arrays_become_columns():
    for dtype in (jnp.bool_, jnp.int8, jnp.uint16, jnp.int32, jnp.float16, jnp.float32):
        x = (jnp.arange(5) % 2).astype(dtype)
        for made in (pd.Series(x), pl.Series(x), pa.array(x), pa.chunked_array(x)):
            np.testing.assert_array_equal(np.asarray(made), x)
        assert pd.Series(x).dtype == dtype and pa.array(x).type == pa.from_numpy_dtype(x.dtype)
    x, n = jnp.arange(3.0), jnp.arange(3)
    columns = {"x": x, "n": n, "t": n > 1}
    want = {"x": [0.0, 1.0, 2.0], "n": [0, 1, 2], "t": [False, False, True]}
    assert pd.DataFrame(columns).to_dict("list") == want
    assert pl.DataFrame(columns).to_dict(as_series=False) == want
    assert pa.table(columns).to_pydict() == want
    assert pd.DataFrame(jnp.ones((2, 3)), columns=list("abc")).shape == (2, 3)
    assert pa.array(x, type=pa.float64()).type == pa.float64()


@pytest.mark.parametrize("place", ["one", "another", "sharded", "replicated"])
def test_arrays_of_many_dimensions_become_lists(place):
    value, x = placed(place, "uneven")
    assert pl.Series(x).to_list() == pa.array(x).to_pylist() == value.tolist()
    deep = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    found = pa.array(jnp.asarray(deep))
    found.validate(full=True)
    assert found.to_pylist() == pl.Series(jnp.asarray(deep)).to_list() == deep.tolist()
    for shape in ((0, 2), (2, 0), (0,)):
        found = pa.array(jnp.zeros(shape))
        found.validate(full=True)
        assert found.to_pylist() == np.zeros(shape).tolist()


def test_columns_share_the_memory_of_arrays_and_keep_it():
    x = jnp.arange(4096.0)
    made = pa.array(x)
    assert made.buffers()[1].address == x.unsafe_buffer_pointer()
    copied = pl.Series(x)
    x.delete()
    again = [jnp.zeros(4096) for _ in range(8)]
    assert made.to_numpy().sum() == copied.sum() == 4095 * 2048 and len(again) == 8


def test_arrays_that_are_no_columns():
    key = sw.random.split(sw.random.key(0), 3)
    for make in (pa.array, pl.Series):
        fails(
            TypeError,
            "Arrow has no type for elements of bfloat16. Convert the array with `astype` first.",
            lambda make=make: make(jnp.ones(3, jnp.bfloat16)),
        )
        fails(
            TypeError,
            "a 0-d array cannot become an Arrow array. Use x.item() for its "
            "element, or x.reshape(1).",
            lambda make=make: make(jnp.ones(())),
        )
        fails(
            TypeError,
            "an array of keys, key<fry>[3], cannot become an Arrow array: keys are not numbers. "
            "Use shardwise.random.key_data(x) for the underlying integers.",
            lambda make=make: make(key),
        )
    assert pl.select(pl.lit(jnp.ones(3)[0])).item() == 1  # as a number


def test_polars_without_arrow():
    program = (
        "import polars, sys, shardwise.numpy as jnp\n"
        "assert polars.Series(jnp.ones((2, 3))).to_list() == [[1.0] * 3] * 2\n"
        "assert 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
