"""Evaluates expressions over functions for the array API: with NumPy's arrays and with ours.

    echo '["stats.skew(u)"]' | python evaluate.py scipy

prints, as JSON, an outcome for each: "" if the values are equal and all arrays are ours, or else
the problem. The program enables SciPy's dispatch; with `sklearn`, also scikit-learn's.
"""

import importlib
import json
import os
import sys
import warnings
from contextlib import ExitStack

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp

MODULES = {
    "scipy": "special stats signal ndimage fft integrate optimize.elementwise differentiate "
    "interpolate linalg cluster.vq cluster.hierarchy spatial.transform",
    "sklearn": "decomposition discriminant_analysis linear_model preprocessing metrics "
    "model_selection pipeline naive_bayes mixture",
}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4)).astype(np.float32)
DATA = {
    "x": RNG.uniform(0.2, 0.8, 12).astype(np.float32),
    "y": RNG.uniform(0.2, 0.8, 12).astype(np.float32),
    "u": RNG.normal(size=40).astype(np.float32), "v": RNG.normal(0.5, 1, 40).astype(np.float32),
    "m": RNG.normal(size=(6, 4)).astype(np.float32),
    "image": RNG.normal(size=(9, 9)).astype(np.float32),
    "q": RNG.normal(size=(5, 4)).astype(np.float32),
    "grid": np.arange(8, dtype=np.float32),
    "X": X, "A": np.abs(X), "B": np.abs(X[::-1].copy()),
    "t": X @ np.array([1, 2, 3, 4], np.float32),
    "s": X @ np.array([1, 2, 3, 4], np.float32) + np.float32(0.1) * X[:, 0],
    "c": (X[:, 0] + X[:, 1] > 0).astype(np.int32), "d": (X[:, 0] > 0).astype(np.int32),
}  # fmt: skip


def names(package):
    found = {}
    for name in MODULES[package].split():
        found[name.rpartition(".")[2]] = importlib.import_module(f"{package}.{name}")
    return found


def values(result):
    """The arrays and numbers of a result."""
    if isinstance(result, list | tuple):
        return [v for r in result for v in values(r)]
    if isinstance(result, dict):
        return values(list(result.values()))
    if isinstance(result, np.ndarray | np.generic | float | jnp.ndarray):
        return [result]
    return values(list(vars(result).values())) if hasattr(result, "__dict__") else []


def compare(text, modules):
    wanted = values(eval(text, {**modules, **DATA, "xp": np}))
    ours = {name: jnp.asarray(value) for name, value in DATA.items()}
    found = values(eval(text, {**modules, **ours, "xp": jnp}))
    assert found and len(found) == len(wanted), (len(found), len(wanted))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=5e-3, atol=5e-4)
    assert not any(isinstance(a, np.ndarray) for a in found), "an array of NumPy"


def main(package, *, alias=False):
    with ExitStack() as stack:
        if alias:
            stack.enter_context(sw.compat.as_jax())
        if package == "sklearn":
            import sklearn

            stack.enter_context(sklearn.config_context(array_api_dispatch=True))
        warnings.simplefilter("ignore")
        modules, found = names(package), {}
        for text in json.load(sys.stdin):
            try:
                compare(text, modules)
                found[text] = ""
            except Exception as error:
                found[text] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], alias="alias" in sys.argv)
