"""Calls of scipy's modules, except those for matrices and Fourier transforms."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
    ("special", "scipy.special"): {
        "f(x)": "dawsn digamma entr erf erfc erfcinv erfcx erfinv exp1 expi expit factorial "
        "fresnel gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr log_softmax loggamma logit "
        "logsumexp ndtr ndtri sici softmax spence wofz",
        "f(x, y)": "beta betaln boxcox boxcox1p comb gammainc gammaincc kl_div owens_t poch "
        "rel_entr xlog1py xlogy",
        "f(x, y, x)": "betainc hyp1f1",
        "f(x, x, y + 1, x)": "hyp2f1",
        "f(x + 1, y)": "zeta",
        "f(i, x)": "expn polygamma",
        "f(x, 2)": "multigammaln",
        "f(8)": "bernoulli",
        "f(x, v=2)": "bessel_jn",
        "f(i % 4, i % 4, x, x, n_max=3)": "sph_harm_y",
    },
    ("windows", "scipy.signal"): {
        "f(x, few)": "convolve correlate fftconvolve",
        "f(matrix, matrix[:3, :3])": "convolve2d correlate2d",
        "f(matrix)": "detrend",
        "f(x, nperseg=8)": "stft welch",
        "f(x, y, nperseg=8)": "csd",
        "f(z.reshape(2, -1))": "istft",
    },
    ("images", "scipy.ndimage"): {"f(matrix, [column * 4, column * 2], 1)": "map_coordinates"},
    ("images", "image"): {
        "f(matrix, (16, 16), 'linear')": "resize",
        "f(matrix, (16, 16), (0, 1), few[:2], few[2:4], 'cubic')": "scale_and_translate",
    },
    ("small", "scipy.integrate"): {"f(x)": "trapezoid"},
    ("small", "scipy.cluster.vq"): {"f(pairs, few.reshape(4, 2))": "vq"},
    ("solvers", "scipy.sparse.linalg"): {"f(lambda v: (x + 1) * v, y)": "bicgstab cg gmres"},
    ("solvers", "scipy.optimize"): {
        "f(lambda v: ((v - few) ** 2).sum(), few * 2, method='BFGS')": "minimize"
    },
    ("small", "scipy.interpolate"): {
        "f([column, row], matrix)(pairs) | -": "RegularGridInterpolator"
    },
    ("solvers", "experimental.ode"): {
        "f(lambda y, t, k: -k * y, few, few[:3].cumsum(), few)": "odeint"
    },
    ("small", "flatten_util"): {"f([x, y])[0] | f([x, y])[0]": "ravel_pytree"},
}
LEFT_OUT: LeftOut = {
    "image": {A_CLASS: "ResizeMethod"},
    "scipy.optimize": {A_CLASS: "OptimizeResults"},
    "scipy.spatial.transform": {A_CLASS: "Rotation Slerp"},
    "experimental.ode": {
        "the row of odeint times it": """abs2 fit_4th_order_polynomial initial_step_size
            interp_fit_dopri mean_error_ratio optimal_step_size runge_kutta_step""",
        "takes a function": "map zip ravel_first_arg ravel_first_arg_",
    },
}
