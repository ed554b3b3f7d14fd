"""Functions of SciPy and scikit-learn that take arrays of any library: ours in, ours out.

They query arrays for their namespace. Where they write into an array, they have a separate code
path for JAX, which `compat.as_jax()` enables; without one, this library raises its own error.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IN_PLACE = (
    "TypeError: Array cannot be changed in place. For a new array with the elements changed, write "
    "x = x.at[idx].set(value)."
)


def lines(text):
    return [line for line in text.strip().splitlines() if line]


SCIPY = lines("""
special.gammainc(x, y)
special.betainc(x, y, x)
special.erf(x)
special.xlogy(x, y)
special.softmax(m)
stats.gmean(x)
stats.pmean(x, 2)
stats.skew(u)
stats.kurtosis(u)
stats.moment(u, 3)
stats.describe(u)
stats.jarque_bera(u)
stats.sem(u)
stats.trim_mean(u, 0.1)
stats.ttest_1samp(u, 0.0)
stats.ttest_ind(u, v)
stats.ttest_rel(u, v)
stats.chisquare(x)
stats.circmean(x)
stats.entropy(x)
stats.rankdata(u)
stats.combine_pvalues(x)
stats.linregress(u, v)
stats.directional_stats(m)
signal.convolve(u, x)
signal.fftconvolve(u, x)
signal.lfilter(x, x, u)
signal.detrend(u)
signal.medfilt(u)
ndimage.gaussian_filter(image, 1.0)
ndimage.sobel(image)
ndimage.zoom(image, 2)
ndimage.label(abs(image))
fft.rfft(m)
fft.dct(m)
integrate.trapezoid(m)
interpolate.CubicSpline(grid, grid**2)(grid + 0.1)
vq.kmeans2(m, 2, rng=0, minit="points")
transform.Rotation.from_quat(q).as_matrix()
""")
SCIPY_TO_NUMPY = lines("""
signal.welch(u, nperseg=16)[1]
signal.stft(u, nperseg=16)[2]
integrate.simpson(m)
linalg.svd(m)[1]
linalg.toeplitz(x)
""")
SCIPY_AS_JAX = lines("""
special.logsumexp(m)
special.log_softmax(m)
special.rel_entr(x, y)
stats.mode(grid)
stats.tmean(u, (-1, 1))
stats.zscore(u)
stats.pearsonr(u, v)
stats.mannwhitneyu(u, v)
stats.wilcoxon(u - v)
stats.kruskal(u, v)
stats.f_oneway(u, v)
stats.normaltest(u)
stats.levene(u, v)
stats.iqr(u)
stats.quantile(u, 0.3)
stats.false_discovery_control(x)
stats.lmoment(u)
stats.boxcox_llf(0.5, x)
signal.savgol_filter(u, 5, 2)
vq.whiten(m)
linalg.block_diag(m, m)
differentiate.derivative(lambda z: z**2, x).df
transform.Rotation.from_euler("xyz", q[:, :3]).as_quat()
""")
SCIPY_REFUSED = lines("""
signal.hilbert(u)
signal.resample(u, 20)
integrate.cumulative_simpson(m, dx=1.0)
integrate.tanhsinh(lambda z: z * z, x, y + 1)
elementwise.find_root(lambda z: z**2 - 1, (x, y + 1))
interpolate.PchipInterpolator(grid, grid**2)(grid)
""")
SKLEARN = lines("""
decomposition.PCA(2, svd_solver="full").fit(X).explained_variance_
abs(decomposition.PCA(2, svd_solver="full").fit_transform(X))
linear_model.RidgeCV().fit(X, t).predict(X)
preprocessing.KernelCenterer().fit_transform(X @ X.T)
preprocessing.LabelEncoder().fit_transform(c)
model_selection.train_test_split(X, c, random_state=0)
metrics.accuracy_score(c, d)
metrics.confusion_matrix(c, d)
metrics.mean_squared_error(t, s)
metrics.mean_absolute_error(t, s)
metrics.roc_auc_score(c, t)
metrics.pairwise.linear_kernel(A, B)
metrics.pairwise.polynomial_kernel(A, B)
""")
SKLEARN_AS_JAX = lines("""
metrics.log_loss(c, abs(t) / 100)
""")
SKLEARN_REFUSED = lines("""
discriminant_analysis.LinearDiscriminantAnalysis().fit(X, c).predict(X)
linear_model.Ridge(solver="svd").fit(X, t).coef_
preprocessing.StandardScaler().fit_transform(X)
preprocessing.MinMaxScaler().fit_transform(X)
naive_bayes.GaussianNB().fit(X, c).predict_proba(X)
metrics.f1_score(c, d)
metrics.r2_score(t, s)
metrics.pairwise.euclidean_distances(A, B)
""")


def evaluated(texts, *way):
    """The outcome of each expression."""
    if importlib.util.find_spec(way[0]) is None:
        pytest.skip(f"needs {way[0]}: pip install 'shardwise[friends]'")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(HERE / "friends" / "evaluate.py"), *way], input=json.dumps(texts),
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def parts(texts, size=6):
    return [texts[i : i + size] for i in range(0, len(texts), size)]


@pytest.mark.parametrize("texts", everyday(parts(SCIPY), 1), ids=lambda t: t[0].partition("(")[0])
def test_scipy(texts):
    assert evaluated(texts, "scipy") == dict.fromkeys(texts, "")


@pytest.mark.sweep
@pytest.mark.parametrize("texts", parts(SCIPY_AS_JAX), ids=lambda t: t[0].partition("(")[0])
def test_scipy_knows_arrays_of_jax(texts):
    assert evaluated(texts, "scipy", "alias") == dict.fromkeys(texts, "")


@pytest.mark.sweep
def test_what_scipy_gives_as_arrays_of_numpy():
    found = evaluated(SCIPY_TO_NUMPY, "scipy")
    assert found == dict.fromkeys(SCIPY_TO_NUMPY, "AssertionError: an array of NumPy")


@pytest.mark.sweep
def test_what_scipy_changes_in_place():
    texts = SCIPY_REFUSED
    assert evaluated(texts, "scipy", "alias") == dict.fromkeys(texts, IN_PLACE)
    texts = SCIPY_AS_JAX[:1]
    assert evaluated(texts, "scipy") == dict.fromkeys(texts, IN_PLACE)


def test_sklearn():
    assert evaluated(SKLEARN, "sklearn") == dict.fromkeys(SKLEARN, "")


def test_sklearn_knows_arrays_of_jax():
    assert evaluated(SKLEARN_AS_JAX, "sklearn", "alias") == dict.fromkeys(SKLEARN_AS_JAX, "")


def test_what_sklearn_changes_in_place():
    assert evaluated(SKLEARN_REFUSED, "sklearn", "alias") == dict.fromkeys(
        SKLEARN_REFUSED, IN_PLACE
    )


SHARDED = """
import os
os.environ["SCIPY_ARRAY_API"] = "1"
import numpy as np
import sklearn
from sklearn.decomposition import PCA
import array_api_compat
import shardwise as sw
import shardwise.numpy as jnp

mesh = sw.make_mesh((8,), ("rows",), axis_types=(sw.sharding.AxisType.Auto,))
host = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
x = sw.device_put(host, sw.NamedSharding(mesh, sw.P("rows")))

assert array_api_compat.array_namespace(x, 1.0) is jnp
assert array_api_compat.is_array_api_obj(x) and not array_api_compat.is_jax_array(x)
assert array_api_compat.device(x) == x.sharding and array_api_compat.size(x) == 384
one = array_api_compat.to_device(x, sw.devices()[0])
assert array_api_compat.device(one) == sw.devices()[0]
assert not array_api_compat.is_lazy_array(x)
sw.jit(lambda v: [v, array_api_compat.is_lazy_array(v) or 1 / 0][0])(x)

with sklearn.config_context(array_api_dispatch=True):
    ours = PCA(2, svd_solver="full").fit(x)
    theirs = PCA(2, svd_solver="full").fit(host)
assert isinstance(ours.components_, sw.Array)
np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-4)
"""


def test_arrays_over_eight_devices(tmp_path):
    for name in ("sklearn", "array_api_compat"):
        pytest.importorskip(name, reason=f"needs {name}: pip install 'shardwise[friends]'")
    program = tmp_path / "program.py"
    program.write_text(SHARDED)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SHARDWISE_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
