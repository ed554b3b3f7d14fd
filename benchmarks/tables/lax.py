"""Calls of lax."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
    ("unary", "lax"): {
        "f(x)": """abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma
            erf erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p log2 logistic neg
            one_minus_square reciprocal round rsqrt sign sin sinh sqrt square stop_gradient tan tanh
            optimization_barrier""",
        "f(1 + x)": "acosh",
        "f(z)": "conj imag real",
        "f(i)": "bitwise_not clz population_count",
        "f(x, numpy.int32)": "bitcast_convert_type convert_element_type",
        "f(x, 3)": "integer_pow",
        "f(x, default=lib.lax.sin)": "platform_dependent",
        "f(x, (1.0, 2.0, 3.0))": "polynomial",
        "f(lib.lax.sin, 'my.sine')(x)": "composite",
        "f(2.0)": "stage",
        "f(x, 5, 10)": "reduce_precision",
        "f(0.2, x, 0.8)": "clamp",
    },
    ("binary", "lax"): {
        "f(x, y)": """add atan2 complex div eq ge gt igamma igammac igamma_grad_a le lt max min
            mul ne nextafter pow rem sub""",
        "f(i, j)": """bitwise_and bitwise_or bitwise_xor mulhi shift_left
            shift_right_arithmetic shift_right_logical""",
        "f(x, y, y)": "betainc",
        "f(1.0, x)": "polygamma",
        "f(1 + x, y)": "zeta",
        "f(b, x, y)": "select select_n",
    },
    ("contraction", "lax"): {
        "f(matrix, turned)": "dot",
        "f(cube, cube)": "batch_matmul",
        "f(matrix, turned, (((1,), (0,)), ((), ())))": "dot_general",
        "f(matrix[None, None], few.reshape(1, 1, 2, 4), (1, 1), 'SAME')": "conv conv_general_dilated",
        "f(matrix[None, None], few.reshape(1, 1, 2, 4), (1, 1), 'SAME', None, None)": "conv_with_general_padding",
        "f(matrix[None, :, :, None], few.reshape(2, 4, 1, 1), (1, 1), 'SAME')": "conv_transpose",
        "f(matrix[None, None], (2, 2), (1, 1), 'SAME')": "conv_general_dilated_patches",
        "f(matrix, turned[None], numpy.array([rows]))": "ragged_dot",
        "f(matrix, turned, preferred_element_type=numpy.float32)": "scaled_dot",
        "f(matrix, turned[None], numpy.array([rows]), lib.lax.RaggedDotDimensionNumbers((((1,), "
        "(1,)), ((), ())), (0,), (0,)))": "ragged_dot_general",
        "f(matrix[None, None], matrix[None, None], (1, 1), 'SAME', (1, 1))": "conv_general_dilated_local",
    },
    ("reduction", "lax"): {
        "f(matrix, (1,))": "reduce_max reduce_min reduce_prod reduce_sum",
        "f(matrix, 1, numpy.int32)": "argmax argmin",
        "f(b, (0,))": "reduce_and reduce_or",
        "f(i, (0,))": "reduce_xor",
        "f(matrix, 0.0, lib.lax.add, (1,))": "reduce",
    },
    ("window", "lax"): {
        "f(matrix, 0.0, lib.lax.add, (2, 2), (1, 1), 'SAME')": "reduce_window",
        "f((8, 8), (3, 3), (1, 1), ((1, 1), (1, 1))) | -": "reduce_window_shape_tuple",
    },
    ("scan", "lax"): {
        "f(matrix, 1)": "cumlogsumexp cummax cummin cumprod cumsum",
        "f(lib.lax.add, matrix)": "associative_scan",
    },
    ("sort", "lax"): {
        "f(x)": "sort",
        "f(x, y)": "sort_key_val",
        "f(matrix, min(8, columns))": "approx_max_k approx_min_k top_k",
    },
    ("shape", "lax"): {
        "f(x, (2,))": "broadcast tile",
        "f(x, (2, n), (1,))": "broadcast_in_dim",
        "f(x, 2)": "broadcast_to_rank",
        "f(matrix, 0, 2)": "collapse",
        "f([matrix, matrix], 0)": "concatenate",
        "f(x, (0,))": "expand_dims rev",
        "f(row, matrix)": "broadcast_like",
        "f(x, 0.0, [(1, 1, 0)])": "pad",
        "f(matrix, (columns, rows))": "reshape",
        "f(x, (n // 4,), (n // 2,))": "slice",
        "f(x, n // 4, n // 2)": "slice_in_dim",
        "f(x, (n // 2, n // 2))": "split",
        "f(matrix[None], (0,))": "squeeze",
        "f([x, y])": "stack",
        "f(matrix, (1, 0))": "transpose",
        "f(cube, axis=1)": "unstack",
    },
    ("indexing", "lax"): {
        "f(matrix, 1)": "dynamic_index_in_dim index_in_dim",
        "f(x, (2,), (4,))": "dynamic_slice",
        "f(x, 2, 4)": "dynamic_slice_in_dim",
        "f(matrix, row, 1, 0)": "dynamic_update_index_in_dim",
        "f(x, y[:4], (2,))": "dynamic_update_slice",
        "f(x, y[:4], 2, 0)": "dynamic_update_slice_in_dim",
        "f(x, [i], (0,))": "index_take",
        "f(x, i[:, None], lambda v: v * 2, lib.lax.ScatterDimensionNumbers((), (0,), (0,)), "
        "update_shape=(n,))": "scatter_apply",
        "f(x, i[:, None], lib.lax.GatherDimensionNumbers((), (0,), (0,)), (1,))": "gather",
        "f(x, i[:, None], y, lib.lax.ScatterDimensionNumbers((), (0,), (0,)))": """scatter
            scatter_add scatter_max scatter_min scatter_mul scatter_sub""",
    },
    ("creation", "lax"): {
        "f((n,), 2.0)": "full",
        "f((n,), numpy.float32)": "empty",
        "f(numpy.arange(4, dtype='uint32'), (n,))": "rng_bit_generator",
        "f(x, 2.0)": "full_like",
        "f(numpy.int32, n)": "iota",
        "f(numpy.int32, (rows, columns), 1)": "broadcasted_iota",
    },
    ("fourier", "lax"): {"f(z, lib.lax.FftType.FFT, (z.shape[0],))": "fft"},
    ("control", "lax"): {
        "f(n > 2, lib.lax.neg, lib.lax.exp, x)": "cond",
        "f(1, [lib.lax.neg, lib.lax.exp], x)": "switch",
        "f(0, 8, lambda k, c: c * 0.5 + k, x)": "fori_loop",
        "f(lambda c: c[0] < 8, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))": "while_loop",
        "f(lambda c, e: (c + e.sum(), c), 0.0, matrix)": "scan",
        "f(lambda e: e.sum(), matrix)": "map",
        "f(lambda v: v * 2, x, lambda mv, b: b / 2)": "custom_linear_solve",
        "f(lambda v: v - 3, 1.0, lambda g, v: 3.0, lambda g, v: v)": "custom_root",
    },
    ("inspection", "lax"): {
        "f(x) | -": "dtype",
        "f((3, 1)) | -": "shape_as_value",
        "f((3, 1), (1, 4)) | -": "broadcast_shapes",
        "f((1, 2, 8), (3, 2, 3), ('NCH', 'OIH', 'NCH')) | -": "conv_dimension_numbers",
        "f(('NCH', 'OIH', 'NCH')) | -": "conv_general_permutations",
        "f((1, 2, 8), (3, 2, 3), (1,), 'SAME') | -": "conv_shape_tuple",
        "f((1, 2, 8), (3, 2, 3), (1,), 'SAME', ('NCH', 'OIH', 'NCH')) | -": "conv_general_shape_tuple conv_transpose_shape_tuple",
        "f((8, 8), (3, 3), (1, 1), 'SAME') | -": "padtype_to_pads",
    },
}

LEFT_OUT: LeftOut = {
    "lax": {
        A_CLASS: """AccuracyMode ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers
            DotAlgorithm DotAlgorithmPreset DotDimensionNumbers FftType
            GatherDimensionNumbers GatherScatterMode Precision PrecisionLike
            RaggedDotDimensionNumbers RandomAlgorithm RoundingMethod
            ScatterDimensionNumbers Tolerance""",
        "of a named axis: rows of maps and hosts time them": """all_gather all_to_all axis_index
            axis_size pbroadcast pcast pmax pmean pmin ppermute pshuffle psum psum_scatter
            pswapaxes ragged_all_to_all""",
        "rows of placements time it": "with_sharding_constraint",
        "it does nothing when it runs": "after_all create_token dce_sink",
        "its numbers come of a hidden state, and no two calls agree": "rng_uniform",
        "no call of jax's goes without an error": "random_gamma_grad",
    }
}
