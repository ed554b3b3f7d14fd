"""The rule by which a platform lowers an op on matrices: the first of its libraries that has one.

    lower=by_platform({"lapack": _by_getrf, "cusolver": _by_getrf_on_cuda, "xla": _by_steps})

`Platform.linalg` lists the libraries: "lapack" on CPU, "cusolver" on CUDA, "libtpu" (functions
that TPU's compiler has) and, last, "xla": XLA's instructions and expansions, and programs made of
ops. A rule that returns None lacks the case, which is left to the next library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.messages.formatting import joined
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_complex
from shardwise._src.types.symbolic import Symbolic

Rules = Mapping[str, Callable[..., Any]]

_TITLES = {"lapack": "LAPACK", "cusolver": "cuSOLVER", "libtpu": "libtpu", "xla": "XLA"}


def by_platform(rules: Rules) -> Callable[..., Any]:
    """A `lower` rule that chooses among rules of libraries."""

    def lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **p: Any) -> Any:
        for library in e.platform.linalg:
            if library in rules:
                found = rules[library](op, e, ins, outs, *xs, **p)
                if found is not None:
                    return found
        raise NotImplementedError(
            f"[{op.name}] is computed by {joined([_TITLES[x] for x in rules], 'or')} only; this "
            f"program is for '{e.platform}'. Compute it outside of this program, with operands "
            "on a CPU device: `shardwise.device_put(x, shardwise.devices('cpu')[0])`."
        )

    return lower


def is_complex_over_devices(e: Any, t: ArrayType) -> bool:
    """Whether a program over several devices has complex matrices: libtpu ends the process in
    compiling their QR and Cholesky factors."""
    return is_complex(t.dtype) and e.meshes is not None and len(e.meshes) > 1


def check_fixed(op: Op, e: Any, t: ArrayType) -> None:
    """Rejects matrices of symbolic size, for rules that are programs of fixed length."""
    if any(isinstance(n, Symbolic) for n in t.shape[-2:]):
        raise NotImplementedError(
            f"[{op.name}] takes matrices of fixed size on '{e.platform}', which has no library "
            f"for it; got {t.str_short(True)}. Only batch dimensions may be symbolic."
        )
