"""Vector quantization."""

from __future__ import annotations

from shardwise._src.core.fused import fused
from shardwise._src.linalg.norms import norm
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.picking import take_along_axis
from shardwise._src.numpy.statistics.reductions import argmin
from shardwise._src.types.annotations import Array, ArrayLike


@fused(arrays=2)
def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The nearest code of each observation, and its Euclidean distance.

    Args:
      obs: (m, n), or m numbers.
      code_book: (k, n), or k numbers.
      check_finite: has no effect.

    Returns:
      (codes, distances): integers and floats of shape (m,). Ties go to the
      first code.
    """
    x, codes = inexact(obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2) or x.shape[1:] != codes.shape[1:]:
        raise ValueError(
            "vq: obs and code_book must be matrices with the same number of columns, or vectors; "
            f"got shapes {x.shape} and {codes.shape}."
        )
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    distances = norm(x[:, None] - codes, axis=-1)
    nearest = argmin(distances, -1)
    return nearest, take_along_axis(distances, nearest[:, None], 1)[:, 0]
