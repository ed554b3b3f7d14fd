"""The arguments of every public function, one file per namespace (see benchmarks.arguments)."""

from benchmarks.tables import fourier, lax, matrices, nn, numpy, random, scipy, stats

TABLES = [module.TABLE for module in (numpy, fourier, matrices, lax, nn, random, scipy, stats)]
LEFT_OUT = {**numpy.LEFT_OUT, **matrices.LEFT_OUT, **lax.LEFT_OUT, **nn.LEFT_OUT, **scipy.LEFT_OUT}
SPACES = (
    *("numpy", "numpy.fft", "numpy.linalg", "lax", "lax.linalg", "nn", "nn.initializers"),
    *("random", "image", "flatten_util", "experimental.ode"),
    *(
        f"scipy.{name}"
        for name in """cluster.vq fft integrate interpolate linalg ndimage optimize signal
            sparse.linalg spatial.transform special""".split()
    ),
    *stats.SPACES,
)
