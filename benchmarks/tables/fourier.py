"""Calls of numpy.fft and scipy.fft."""

from benchmarks.tables.kinds import Table

TABLE: Table = {
    ("fourier", "numpy.fft"): {
        "f(matrix)": """fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2
            irfftn rfft rfft2 rfftn""",
        "f(n) | -": "fftfreq rfftfreq",
    },
    ("fourier", "scipy.fft"): {"f(matrix)": "dct dctn idct idctn"},
}
