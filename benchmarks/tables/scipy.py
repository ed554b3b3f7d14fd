"""Calls of scipy's modules, those of matrices and Fourier transforms apart."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
    ("windows", "scipy.signal"): {
        "f(x, few)": "convolve correlate fftconvolve",
        "f(matrix, matrix[:3, :3])": "convolve2d correlate2d",
        "f(matrix)": "detrend",
        "f(x, nperseg=8)": "stft welch",
        "f(x, y, nperseg=8)": "csd",
        "f(z.reshape(2, -1))": "istft",
    },
    ("images", "scipy.ndimage"): {
        "f(matrix, [column * 4, column * 2], 1)": "map_coordinates",
    },
    ("images", "image"): {
        "f(matrix, (16, 16), 'linear')": "resize",
        "f(matrix, (16, 16), (0, 1), few[:2], few[2:4], 'cubic')": "scale_and_translate",
    },
    ("small", "scipy.integrate"): {"f(x)": "trapezoid"},
    ("small", "scipy.cluster.vq"): {"f(pairs, few.reshape(4, 2))": "vq"},
    ("small", "flatten_util"): {"f([x, y])[0] | f([x, y])[0]": "ravel_pytree"},
}
LEFT_OUT: LeftOut = {"image": {A_CLASS: "ResizeMethod"}}
