"""What each function of both libraries is called with, by the kind of call.

    calls()["numpy.sin"]            # Call(kind="unary", eager="f(x)", cached="f(x)")
    operands = Operands(lib, 16384)
    operands["x"]                   # float32[16384], as an array of the library

A call is a Python expression over `f`, the arrays of `ARRAYS`, the numbers `n` (elements of an
operand), `rows` and `columns` (of a matrix with as many), and the library: `lib`. The arrays that
it names become arguments of the jitted function; all else is static.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import numpy

from benchmarks.libs import Lib

ROWS = 8  # of a matrix whose elements are no power of two: the step of sizes never used before

# -- operands --


def shape_of_matrix(n: int) -> tuple[int, int]:
    """As square as may be for a power of two."""
    power = n.bit_length() - 1
    rows = 1 << power // 2 if n == 1 << power else ROWS
    return rows, n // rows


def real(n: int, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).uniform(0.1, 0.9, n).astype("float32")


def whole(n: int, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(1, 8, n, "int32")


def vectors(n: int, seed: int) -> numpy.ndarray:
    return real(n // 4 * 3, seed).reshape(-1, 3)


def matrices(n: int, seed: int) -> numpy.ndarray:
    """Square ones, 8 × 8 where there are elements enough: what is done in batches."""
    side = min(8, math.isqrt(n))
    return real(n // side**2 * side**2, seed).reshape(-1, side, side)


def positive(n: int, seed: int) -> numpy.ndarray:
    """Symmetric and positive definite."""
    found = matrices(n, seed)
    return found @ found.mT + numpy.eye(found.shape[-1], dtype="float32")


# name: (made of n elements, whether its size follows n)
ARRAYS: Mapping[str, tuple[Callable[[int], numpy.ndarray], bool]] = {
    "x": (lambda n: real(n, 0), True),
    "y": (lambda n: real(n, 1), True),
    "z": (lambda n: (real(n // 2, 0) + 1j * real(n // 2, 1)).astype("complex64"), True),
    "i": (lambda n: whole(n, 2), True),
    "j": (lambda n: whole(n, 3), True),
    "b": (lambda n: real(n, 4) < 0.5, True),
    "matrix": (lambda n: real(n, 5).reshape(shape_of_matrix(n)), True),
    "turned": (lambda n: real(n, 6).reshape(shape_of_matrix(n)[::-1]), True),
    "square": (lambda n: real(math.isqrt(n) ** 2, 7).reshape(math.isqrt(n), -1), True),
    "row": (lambda n: real(shape_of_matrix(n)[1], 8), True),
    "column": (lambda n: real(shape_of_matrix(n)[0], 9), True),
    "pairs": (lambda n: real(n // 2 * 2, 15).reshape(-1, 2), True),
    "u": (lambda n: vectors(n, 10), True),
    "v": (lambda n: vectors(n, 11), True),
    "cube": (lambda n: real(n // 4 * 4, 12).reshape(-1, 2, 2), True),
    "matrices": (lambda n: matrices(n, 16), True),
    "positive": (lambda n: positive(n, 17), True),
    "few": (lambda n: real(8, 13), False),
    "sorted": (lambda n: numpy.linspace(0, 1, 9, dtype="float32"), False),
    "heads": (lambda n: real(n, 14).reshape(-1, math.gcd(n // 4, 64), 2, 2), True),
}


class Operands(Mapping[str, Any]):
    """The names of a call: arrays of a library, made when a call first asks for them."""

    def __init__(self, lib: Lib, n: int):
        rows, columns = shape_of_matrix(n)
        self.kept = {"lib": lib, "numpy": numpy, "n": n, "rows": rows, "columns": columns}
        self.lib, self.n = lib, n

    def __getitem__(self, name: str) -> Any:
        if name not in self.kept:
            if name == "key":
                self.kept[name] = self.lib.random.key(0)
            else:
                self.kept[name] = self.lib.root.device_put(ARRAYS[name][0](self.n))
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)


# -- calls --


@dataclass(frozen=True)
class Call:
    """How a function is called; `cached` is None for what cannot be jitted."""

    kind: str
    eager: str
    cached: str | None

    @cached_property
    def grows(self) -> bool:
        """Whether the work follows the number of elements."""
        names = names_in(self.eager)
        sized = {name for name, (_, sized) in ARRAYS.items() if sized}
        return not names.isdisjoint(sized | {"n", "rows", "columns"})


def names_in(call: str) -> set[str]:
    """The names of a call, also those inside its lambdas."""
    found, codes = set(), [compile(call, "<call>", "eval")]
    while codes:
        code = codes.pop()
        found |= {*code.co_names, *code.co_freevars}
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


def arrays_in(call: str) -> list[str]:
    return sorted(names_in(call) & (ARRAYS.keys() | {"key"}))


def bound(call: str, function: Any, operands: Operands) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of its arrays, and these."""
    names = arrays_in(call)
    static = {k: operands[k] for k in ("lib", "numpy", "n", "rows", "columns")}
    code = compile(f"lambda {', '.join(names)}: {call}", "<call>", "eval")
    return eval(code, {**static, "f": function}), [operands[name] for name in names]


def calls() -> dict[str, Call]:
    """Every function that the table names, as `namespace.name`."""
    found = {}
    for (kind, space), rows in TABLE.items():
        for expression, names in rows.items():
            eager, _, cached = expression.partition(" | ")
            cached = None if cached == "-" else cached or eager
            for name in names.split():
                assert f"{space}.{name}" not in found, name
                found[f"{space}.{name}"] = Call(kind, eager, cached)
    return found


# (kind, namespace): {"eager call | call under jit, where it is another, or -": functions}
TABLE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("unary", "numpy"): {
        "f(x)": """abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin
            asinh atan atanh cbrt ceil cos cosh deg2rad degrees exp exp2 expm1 fabs floor i0
            isfinite isinf isnan isneginf isposinf iscomplex isreal log log10 log1p log2
            logical_not modf nan_to_num negative positive rad2deg radians reciprocal rint round
            around sign signbit sin sinc sinh spacing sqrt square tan tanh trunc frexp copy""",
        "f(z)": "conj conjugate imag real",
        "f(i)": "bitwise_count bitwise_invert bitwise_not invert",
        "f(x, 0.2, 0.8)": "clip",
        "f(x, numpy.int32)": "astype",
    },
    ("binary", "numpy"): {
        "f(x, y)": """add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax
            fmin fmod greater greater_equal heaviside hypot isclose less less_equal logaddexp
            logaddexp2 logical_and logical_or logical_xor maximum minimum mod multiply nextafter
            not_equal pow power remainder subtract true_divide""",
        "f(i, j)": """bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd
            lcm left_shift right_shift""",
        "f(x, i)": "ldexp",
        "f(b, x, y)": "where",
        "f([b], [x], 0.0)": "select",
        "f(i, [x, y], mode='clip')": "choose",
        "f(x, [b], [1.0, 2.0])": "piecewise",
        "f(u, v)": "cross vecdot",
    },
    ("reduction", "numpy"): {
        "f(matrix, 0)": """amax amin argmax argmin average max mean min nanargmax nanargmin nanmax
            nanmean nanmin nanprod nanstd nansum nanvar prod ptp std sum var count_nonzero""",
        "f(b)": "all any",
        "f(x, y)": "allclose array_equal array_equiv trapezoid",
    },
    ("scan", "numpy"): {
        "f(x)": "cumprod cumsum nancumprod nancumsum cumulative_prod cumulative_sum unwrap",
        "f(x) ": "diff ediff1d gradient",
        "f(x, few)": "convolve correlate",
    },
    ("sorting", "numpy"): {
        "f(x)": "argsort sort sort_complex median nanmedian",
        "f(x, 0.3)": "quantile nanquantile",
        "f(x, 30.0)": "percentile nanpercentile",
        "f((i, j))": "lexsort",
        "f(x, n // 2)": "partition argpartition",
        "f(sorted, x)": "searchsorted",
        "f(x, sorted)": "digitize",
        "f(x, few)": "isin",
        "f(x, sorted, sorted)": "interp",
        "f(x, 8)": "histogram",
        "f(x, 8) ": "histogram_bin_edges",
        "f(x, y, 8)": "histogram2d",
        "f(pairs, 4)": "histogramdd",
        "f(i) | f(i, length=8)": "bincount",
    },
    ("depends on values", "numpy"): {
        "f(x) | f(x, size=8)": """unique unique_all unique_counts unique_inverse unique_values
            argwhere flatnonzero nonzero""",
        "f(x) | -": "trim_zeros",
        "f(x, few) | f(x, few, size=8)": "intersect1d setdiff1d union1d",
        "f(x, few) | f(x, few, size=n + 8)": "setxor1d",
        "f(b, x) | f(b, x, size=8)": "compress extract",
    },
    ("shape", "numpy"): {
        "f(x)": "atleast_1d atleast_2d atleast_3d flip ravel",
        "f(matrix)": """fliplr flipud matrix_transpose rot90 transpose unstack
            squeeze tril triu diag diagonal trace""",
        "f(matrix, (1, 0))": "permute_dims",
        "f(row)": "diagflat",
        "f([x, y])": "column_stack concat concatenate dstack hstack stack vstack block",
        "f(x, y)": "append broadcast_arrays",
        "f(row, (rows, columns))": "broadcast_to",
        "f(x, 0)": "expand_dims",
        "f(matrix, 0, 1)": "moveaxis swapaxes",
        "f(matrix, 1)": "rollaxis",
        "f(x, 2)": "array_split split hsplit repeat tile pad roll",
        "f(matrix, 2)": "vsplit",
        "f(cube, 2)": "dsplit",
        "f(x, (n // 2, 2))": "reshape resize",
        "f(x, 2, 1.0)": "insert",
        "f(x, 2)  ": "delete",
    },
    ("indexing", "numpy"): {
        "f(x, i)": "take",
        "f(x, i, 0)": "take_along_axis",
        "f(x, i, y, 0, inplace=False)": "put_along_axis",
        "f(x, i, y, inplace=False)": "put",
        "f(x, b, y, inplace=False)": "place",
        "f(matrix, 0.0, inplace=False)": "fill_diagonal",
        "f(i, (rows, columns + 8))": "unravel_index",
        "f((i, j), (8, 8), mode='clip')": "ravel_multi_index",
        "f(rows)": "diag_indices tril_indices triu_indices",
        "f(square)": "diag_indices_from tril_indices_from triu_indices_from",
        "f((rows, columns))": "indices",
        "f(row, column)": "ix_ meshgrid",
        "f(rows, lib.np.triu) | f(rows, lib.np.triu, size=rows)": "mask_indices",
    },
    ("creation", "numpy"): {
        "f(n)": """arange bartlett blackman empty hamming hanning ones zeros""",
        "f(n, 14.0)": "kaiser",
        "f(n, 2.0)": "full",
        "f(rows)": "eye identity",
        "f(rows, columns)": "tri",
        "f(x)": "array asarray empty_like ones_like zeros_like",
        "f(x, 2.0)": "full_like",
        "f(0.0, 1.0, n)": "linspace logspace",
        "f(1.0, 2.0, n)": "geomspace",
        "f(numpy.ones(n, 'float32')) | -": "from_dlpack frombuffer",
        "f(lambda i, j: i + j, (rows, columns))": "fromfunction",
        "f(row, 8)": "vander",
        "f(1)": """bfloat16 bool bool_ cdouble complex128 complex64 complex_ csingle double float16
            float32 float4_e2m1fn float64 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
            float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ int16 int2 int32
            int4 int64 int8 int_ single uint uint16 uint2 uint32 uint4 uint64 uint8""",
    },
    ("contraction", "numpy"): {
        "f(matrix, turned)": "dot matmul",
        "f(x, y)": "inner vdot",
        "f(column, row)": "outer",
        "f(matrix, row)": "matvec",
        "f(column, matrix)": "vecmat",
        "f(matrix, turned, 1)": "tensordot",
        "f('ij,jk->ik', matrix, turned)": "einsum",
        "f(row, column)": "kron",
        "f(matrix)": "corrcoef cov",
    },
    ("polynomials", "numpy"): {
        "f(few)": "poly polyder polyint",
        "f(few, sorted)": "polyadd polymul polysub",
        "f(few, x)": "polyval",
    },
    ("facts", "numpy"): {
        "f((3, 1), (1, 4)) | -": "broadcast_shapes",
        "f('int32', 'float32') | -": "can_cast promote_types",
        "f('float32') | -": "finfo",
        "f('int32') | -": "iinfo",
        "f('ij,jk->ik', matrix, turned) | -": "einsum_path",
        "f() | -": "get_printoptions",
        "f(precision=8) | -": "printoptions set_printoptions",
        "f(few) | -": "iscomplexobj isrealobj isscalar ndim shape size",
        "f(numpy.dtype('float32'), 'real floating') | -": "isdtype",
        "f(numpy.float32, numpy.floating) | -": "issubdtype",
        "f(few, 1.0) | -": "result_type",
    },
    ("contraction", "numpy.linalg"): {
        "f(matrix, turned)": "matmul",
        "f([matrix, turned, matrix])": "multi_dot",
        "f(square, 3)": "matrix_power",
        "f(column, row)": "outer",
        "f(matrix, turned, axes=1)": "tensordot",
        "f(u, v)": "cross vecdot",
    },
    ("reduction", "numpy.linalg"): {
        "f(matrix)": "matrix_norm norm trace vector_norm",
    },
    ("shape", "numpy.linalg"): {"f(matrix)": "matrix_transpose", "f(matrices)": "diagonal"},
    ("linear algebra", "numpy.linalg"): {
        "f(positive)": "cholesky cond det eigh eigvalsh inv matrix_rank pinv slogdet",
        "f(matrices)": "eig eigvals qr svd svdvals",
        "f(positive, matrices)": "solve",
        "f(matrix, column)": "lstsq",
        "f(positive[0], ind=1)": "tensorinv",
        "f(positive[0], positive[0, 0])": "tensorsolve",
    },
    ("fourier", "numpy.fft"): {
        "f(matrix)": """fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2
            irfftn rfft rfft2 rfftn""",
        "f(n) | -": "fftfreq rfftfreq",
    },
    ("activation", "nn"): {
        "f(x)": """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu
            log1mexp log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus
            sparse_sigmoid squareplus swish tanh""",
    },
    ("reduction", "nn"): {
        "f(matrix)": "log_softmax softmax standardize",
        "f(matrix) ": "logmeanexp logsumexp",
    },
    ("contraction", "nn"): {"f(heads, heads, heads)": "dot_product_attention"},
    ("creation", "nn"): {"f(i, 8)": "one_hot"},
    ("random", "nn.initializers"): {
        "f()(key, (rows, columns))": """glorot_normal glorot_uniform he_normal he_uniform
            kaiming_normal kaiming_uniform lecun_normal lecun_uniform normal truncated_normal
            uniform xavier_normal xavier_uniform""",
        "f(1.0)(key, (rows, columns))": "constant",
        "f(key, (rows, columns))": "ones zeros",
        "f(1.0, 'fan_in', 'normal')(key, (rows, columns))": "variance_scaling",
    },
    ("random", "random"): {
        "f(key, (n,))": """bits cauchy exponential gumbel laplace logistic maxwell normal
            rademacher uniform""",
        "f(key, 3, shape=(n // 4,))": "ball",
        "f(key, 0.3, (n,))": "bernoulli geometric",
        "f(key, 2.0, 3.0, (n,))": "beta f",
        "f(key, 10, 0.3, (n,))": "binomial",
        "f(key, matrix)": "categorical",
        "f(key, x, (n // 2,))": "choice",
        "f(key, 3.0, (n,))": "chisquare gamma loggamma pareto poisson t generalized_normal wald",
        "f(key, few, (n // 8,))": "dirichlet",
        "f(key, 100, few / few.sum(), shape=(n // 8, 8))": "multinomial",
        "f(key, x)": "permutation",
        "f(key, (n,), 0, 10)": "randint",
        "f(key, 1.0, 2.0, (n,))": "double_sided_maxwell weibull_min",
        "f(key, 2.0, (n,))": "lognormal rayleigh",
        "f(key, 0.0, 0.5, 1.0, (n,))": "triangular",
        "f(key, -2.0, 2.0, (n,))": "truncated_normal",
        "f(key, n)": "split",
        "f(key, 5)": "fold_in",
        "f(key)": "clone key_data",
        "f(key) | -": "key_impl",
        "f() | -": "key_dtype",
        "f(5)": "PRNGKey key",
        "f(lib.random.key_data(key))": "wrap_key_data",
    },
}

A_CLASS = "an abstract class or a type, nothing to call"
FILES = "its time is that of the file"
# What both libraries have and nobody times, and why.
LEFT_OUT: Mapping[str, str] = {
    **{
        f"numpy.{name}": A_CLASS
        for name in """complexfloating dtype floating generic inexact integer ndarray number
            signedinteger unsignedinteger""".split()
    },
    **{f"numpy.{name}": FILES for name in "load save savez".split()},
    "nn.initializers.Initializer": A_CLASS,
}
SPACES = ("numpy", "numpy.fft", "numpy.linalg", "nn", "nn.initializers", "random")


def shared(one: Lib, other: Lib) -> list[str]:
    """What may be called in both libraries, as `namespace.name`."""
    return [
        f"{space}.{name}"
        for space in SPACES
        for name in dir(find(one, space))
        if not name.startswith("_")
        and callable(find(one, f"{space}.{name}"))
        and hasattr(find(other, space), name)
    ]


def find(lib: Lib, name: str) -> Any:
    """What `numpy.linalg.norm` is in a library."""
    parts = {"numpy": lib.np, "nn": lib.nn, "random": lib.random}
    first, *rest = name.split(".")
    found = parts[first]
    for part in rest:
        found = getattr(found, part)
    return found
