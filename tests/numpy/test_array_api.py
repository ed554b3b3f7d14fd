"""The Python array API standard, 2024.12, by its own names, signatures and conventions.

`SIGNATURES` is the standard's list: parameters before "/" are positional, parameters
after "*" are keyword-only, with their defaults.
"""

from __future__ import annotations

import inspect
import operator

import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as xp
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday
from tests.helpers.meshes import DEVICES
from tests.helpers.placed import PLACES

UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor
    imag isfinite isinf isnan log log1p log2 log10 logical_not negative positive real reciprocal
    round sign signbit sin sinh square sqrt tan tanh trunc""".split()
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp
    logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder
    subtract""".split()
SIGNATURES = (
    """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num=50, *, dtype=None, device=None, endpoint=True)
meshgrid(a, b, *, indexing="xy")
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=False, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(a, b, /)
clip(x, /, min=None, max=None)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
__array_namespace_info__()
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(a, b, /)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side="left", sorter=None)
where(condition, x1, x2, /)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
fft.fft(x, /, *, n=None, axis=-1, norm="backward")
fft.ifft(x, /, *, n=None, axis=-1, norm="backward")
fft.fftn(x, /, *, s=None, axes=None, norm="backward")
fft.ifftn(x, /, *, s=None, axes=None, norm="backward")
fft.rfft(x, /, *, n=None, axis=-1, norm="backward")
fft.irfft(x, /, *, n=None, axis=-1, norm="backward")
fft.rfftn(x, /, *, s=None, axes=None, norm="backward")
fft.irfftn(x, /, *, s=None, axes=None, norm="backward")
fft.hfft(x, /, *, n=None, axis=-1, norm="backward")
fft.ihfft(x, /, *, n=None, axis=-1, norm="backward")
fft.fftfreq(n, /, *, d=1.0, dtype=None, device=None)
fft.rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fft.fftshift(x, /, *, axes=None)
fft.ifftshift(x, /, *, axes=None)
linalg.cholesky(x, /, *, upper=False)
linalg.cross(x1, x2, /, *, axis=-1)
linalg.det(x, /)
linalg.diagonal(x, /, *, offset=0)
linalg.eigh(x, /)
linalg.eigvalsh(x, /)
linalg.inv(x, /)
linalg.matmul(x1, x2, /)
linalg.matrix_norm(x, /, *, keepdims=False, ord="fro")
linalg.matrix_power(x, n, /)
linalg.matrix_rank(x, /, *, rtol=None)
linalg.matrix_transpose(x, /)
linalg.outer(x1, x2, /)
linalg.pinv(x, /, *, rtol=None)
linalg.qr(x, /, *, mode="reduced")
linalg.slogdet(x, /)
linalg.solve(x1, x2, /)
linalg.svd(x, /, *, full_matrices=True)
linalg.svdvals(x, /)
linalg.tensordot(x1, x2, /, *, axes=2)
linalg.trace(x, /, *, offset=0, dtype=None)
linalg.vecdot(x1, x2, /, *, axis=-1)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
""".strip().splitlines()
    + [f"{n}(x, /)" for n in UNARY]
    + [f"{n}(x1, x2, /)" for n in BINARY]
)
DTYPES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64
    complex128""".split()
CONSTANTS = {"e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi}
OPERATORS = """abs add and_ eq floordiv ge gt inv le lshift lt matmul mod mul ne neg or_ pos pow
    rshift sub truediv xor""".split()
# Equivalent defaults.
EQUAL = [{None, "backward"}, {None, 1}, {None, False}, {"reduced", None}, {0}]


def named(path):
    return operator.attrgetter(path)(xp)


def signature_of(text):
    path, _, rest = text.partition("(")
    space: dict = {}
    exec(f"def f({rest}: ...", space)  # the standard's own wording
    return path, inspect.signature(space["f"])


@pytest.mark.parametrize("text", SIGNATURES)
def test_signature(text):
    path, wanted = signature_of(text)
    ours = inspect.signature(named(path))
    by_place = [p for p in wanted.parameters.values() if p.kind == p.POSITIONAL_ONLY]
    by_name = {n: p.default for n, p in wanted.parameters.items() if p.kind != p.POSITIONAL_ONLY}
    if path == "meshgrid":
        by_place, by_name = by_place + [None, None], {"indexing": "xy"}
    required = [p for p in by_place if p is None or p.default is p.empty]
    for count in {len(required), len(by_place)}:
        ours.bind(*range(count), **by_name)
    for name, default in by_name.items():
        p = ours.parameters.get(name)
        if default is not inspect.Parameter.empty and p is not None:
            same = p.default == default or any({p.default, default} <= pair for pair in EQUAL)
            assert same, f"{name}={p.default!r}, in the standard {default!r}"


def test_constants_and_dtypes():
    for name, value in CONSTANTS.items():
        assert np.array_equal([getattr(xp, name)], [value], equal_nan=name == "nan")
    for name in DTYPES:
        kind = getattr(xp, name)
        assert kind == np.dtype(name) and xp.isdtype(kind, kind)
        with sw.enable_x64(True):
            x = xp.zeros((2, 3), dtype=kind)
            assert x.dtype == kind and x.dtype == np.dtype(name)
    for kind in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
        ("bool", "integral"),
        (xp.int8, xp.float32),
    ):
        theirs = tuple([np.dtype(k.dtype) for k in kind]) if kind[0] is xp.int8 else kind
        for name in DTYPES:
            assert xp.isdtype(getattr(xp, name), kind) == np.isdtype(np.dtype(name), theirs)


def test_limits():
    for name in ("float32", "float64", "complex64"):
        info, wanted = xp.finfo(getattr(xp, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(info, field) == getattr(wanted, field)
        assert info.dtype == wanted.dtype
    assert (xp.iinfo(xp.int8).bits, xp.iinfo(xp.int8).max, xp.iinfo(xp.int8).min) == (8, 127, -128)
    assert xp.iinfo(xp.int8).dtype == np.int8


def test_inspection():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }
    assert info.default_device() == sw.devices()[0] == xp.zeros(1).device
    assert info.devices() == sw.devices()
    with sw.default_device(DEVICES[3]):
        assert info.default_device() == DEVICES[3] == xp.zeros(1).device
    for wide in (False, True):
        with sw.enable_x64(wide):
            defaults = info.default_dtypes(device=DEVICES[0])
            assert defaults == {
                "real floating": xp.zeros(1).dtype,
                "complex floating": xp.asarray(1j).dtype,
                "integral": xp.asarray(1).dtype,
                "indexing": xp.argmax(xp.ones(2)).dtype,
            }
            every = [
                n for n in DTYPES if wide or n not in ("int64", "uint64", "float64", "complex128")
            ]
            assert list(info.dtypes()) == every
            assert all(v == np.dtype(n) for n, v in info.dtypes(device=DEVICES[1]).items())
            assert list(info.dtypes(kind="real floating")) == ["float32", "float64"][: 1 + wide]
            two = info.dtypes(kind=("bool", "complex floating"))
            assert list(two) == ["bool", "complex64", "complex128"][: 2 + wide]
    fails(
        ValueError,
        "dtypes: kind must be one of ('bool', 'signed integer', 'unsigned integer', "
        "'real floating', 'complex floating', 'integral', 'numeric'); got 'text'.",
        lambda: info.dtypes(kind="text"),
    )
    fails(
        TypeError,
        "device must be a device, a sharding or None; got 'cpu'.",
        info.default_dtypes,
        device="cpu",
    )


def test_namespace_of_arrays():
    x = xp.ones((2, 3))
    assert xp.__array_api_version__ == jax.numpy.__array_api_version__ == "2024.12"
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    assert sw.jit(lambda x: x.__array_namespace__().sin(x))(x).shape == (2, 3)
    fails(
        ValueError,
        "__array_namespace__: api_version must be one of 2021.12, 2022.12, 2023.12, "
        "2024.12; got '2020.01'.",
        x.__array_namespace__,
        api_version="2020.01",
    )


@pytest.mark.parametrize("place", ["one", "partly replicated", "sharded"])
def test_attributes_and_methods_of_arrays(place):
    host = np.arange(6, dtype=np.float32).reshape(3, 2)
    x = sw.device_put(host, PLACES[place])
    assert (x.dtype, x.ndim, x.shape, x.size) == (np.float32, 2, (3, 2), 6)
    assert x.mT.tolist() == x.T.tolist() == host.T.tolist()
    assert x.device == PLACES[place] or x.device in DEVICES
    moved = x.to_device(DEVICES[2], stream=None)
    assert moved.device == DEVICES[2] and moved.tolist() == host.tolist()
    assert x.to_device(x.device).device == x.device
    fails(
        NotImplementedError,
        "to_device does not support stream; got 1. Leave it out.",
        x.to_device,
        DEVICES[0],
        stream=1,
    )
    one = x[0, 1]
    assert (bool(one), int(one), float(one), complex(one)) == (True, 1, 1.0, 1 + 0j)
    assert operator.index(one.astype(xp.int32)) == 1


def test_exchange():
    x = xp.arange(3.0)
    for how in (
        {},
        {"stream": None},
        {"max_version": (1, 0)},
        {"copy": True},
        {"dl_device": (1, 0), "max_version": (1, 1)},
    ):
        assert x.__dlpack__(**how)
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x).tolist() == xp.from_dlpack(np.arange(3.0, dtype="f4")).tolist()


@pytest.mark.parametrize("name", everyday(OPERATORS, 3))
def test_operators(name):
    fun = getattr(operator, name)
    whole = name in ("and_", "or_", "xor", "lshift", "rshift", "inv")
    host = np.array([[3, 1], [2, 5]], np.int32 if whole else np.float32)
    x = xp.asarray(host)
    if name in ("abs", "inv", "neg", "pos"):
        assert fun(x).tolist() == fun(host).tolist()
        return
    np.testing.assert_allclose(fun(x, x), fun(host, host))
    if name != "matmul":
        for y in (2, np.int32(2)) if whole else (2, 2.5):
            np.testing.assert_allclose(fun(x, y), fun(host, y))
            np.testing.assert_allclose(fun(y, x), fun(y, host))
        changed = x
        changed = getattr(operator, f"i{name.strip('_')}", fun)(changed, 2)
        np.testing.assert_allclose(changed, fun(host, 2))


def test_python_numbers_beside_arrays():
    x = xp.asarray([1, 2], dtype=xp.int8)
    for name in ("add", "maximum", "bitwise_or", "less", "remainder"):
        wanted = getattr(np, name)(np.array([1, 2], np.int8), 1)
        assert getattr(xp, name)(x, 1).tolist() == wanted.tolist()
        assert getattr(xp, name)(1, x).dtype in (np.int8, np.bool_)
    assert xp.add(x, 1).dtype == np.int8 and xp.where(x > 1, x, 0).dtype == np.int8
    assert xp.result_type(x, 1, xp.float32) == np.float32
    assert xp.clip(x, 0, 1).dtype == np.int8


def test_results_have_names():
    q, r = xp.linalg.qr(xp.eye(2))
    assert xp.linalg.qr(xp.eye(2)).Q.tolist() == q.tolist() and r.shape == (2, 2)
    for fun, fields in {
        "eigh": ("eigenvalues", "eigenvectors"),
        "slogdet": ("sign", "logabsdet"),
        "svd": ("U", "S", "Vh"),
        "qr": ("Q", "R"),
    }.items():
        assert getattr(xp.linalg, fun)(xp.eye(2))._fields == fields
    x = xp.asarray([2, 1, 2])
    assert xp.unique_all(x)._fields == ("values", "indices", "inverse_indices", "counts")
    assert xp.unique_counts(x)._fields == ("values", "counts")
    assert xp.unique_inverse(x)._fields == ("values", "inverse_indices")


def test_indices():
    x = xp.reshape(xp.arange(24), (2, 3, 4))
    host = np.arange(24).reshape(2, 3, 4)
    for key in (
        0,
        (0, 1),
        (slice(None, None, -1),),
        (..., 1),
        (None, 0),
        host % 2 == 0,
        (slice(1), np.array([0, 2])),
        (np.array([0, 1]), np.array([1, 2]), 0),
    ):
        assert x[key].tolist() == host[key].tolist()
