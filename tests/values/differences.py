"""Intended differences from jax's values: see test_same_as_jax.py.

reason: globs of `name way`
"""

DIFFERENT = {
    "any order is one": ["numpy.*partition *"],
    "jax does not end": ["lax.igamma special", "scipy.special.gammainc special"],
    "jax's overflows": ["scipy.special.bessel_jn *"],
    "jax's derivative is NaN for small and for large means": ["scipy.stats.poisson.entropy grad"],
    "jax's results, or scalars, are weakly typed in some places": [
        "lax.linalg.qdwh *",
        "lax.scan *",
        "lax.custom_root *",
        *(f"scipy.stats.multivariate_normal.pdf {way}" for way in ("bytes", "truths", "whole")),
    ],
    "jax rounds the operands": ["lax.scaled_dot *"],
    "an element that is moved is no product with 0": ["lax.conv_general_dilated_patches *"],
    "complex numbers have no order": [
        "nn.*lu complex",
        "nn.hard_* complex",
        "scipy.stats.* complex",
    ],
    "small integers overflow in jax": ["scipy.special.*softmax bytes", "nn.*softmax bytes"],
    "of booleans, floats are weakly typed": ["scipy.stats.* truths"],
    "NaN where the function has no real value": [
        "numpy.*cosh grad signed",
        "lax.acosh grad signed",
        "scipy.special.exp1 grad signed",
    ],
    "at and beyond the ends of the domain": [
        "lax.igamma_grad_a special",
        *(f"scipy.special.{name} special" for name in ("beta", "kl_div", "poch", "hyp1f1")),
        "scipy.special.hyp2f1 bytes",
        "scipy.special.hyp2f1 whole",
    ],
    "a part of it overflows": ["scipy.special.comb special"],
    "NumPy refuses them, too": ["*fft* empty"],
    "NaN is the largest number, and not among the least": ["lax.approx_min_k nan"],
    "jax multiplies by complex numbers that are real": ["scipy.signal.stft nan"],
    "no solution is found, and that is said": [
        f"scipy.sparse.linalg.{name} nan" for name in ("bicgstab", "cg", "gmres")
    ],
    "other steps to the same place": [
        *(f"scipy.optimize.minimize {way}" for way in ("plain", "signed", "nan"))
    ],
    "one triangle is read, and the gradient says so": ["scipy.linalg.cholesky grad"],
}
