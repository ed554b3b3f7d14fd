"""Calls of numpy."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
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
    ("bits", "numpy"): {"f(i)": "packbits", "f(i.astype(lib.np.uint8))": "unpackbits"},
    ("mapping", "numpy"): {
        "f(lib.np.sum, 0, matrix)": "apply_along_axis",
        "f(lib.np.sum, matrix, (0, 1))": "apply_over_axes",
        "f(lib.np.dot, signature='(n),(n)->()')(u, v)": "vectorize",
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
        "f(few) | f(few, strip_zeros=False)": "roots",
        "f(few, few)": "polydiv",
        "f(x, y, 2)": "polyfit",
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
}

LEFT_OUT: LeftOut = {
    "numpy": {
        "it makes a function": "frompyfunc",
        "it takes no arrays, or gives none": "array_repr array_str iterable",
        "no program takes it": "float6_e2m3fn float6_e3m2fn",
        A_CLASS: """ComplexWarning character complexfloating dtype flexible floating generic inexact
            integer ndarray number object_ signedinteger ufunc unsignedinteger""",
        "its time is that of the file": "fromfile load save savez",
        "NumPy reads the values": "fromiter fromstring",
    }
}
