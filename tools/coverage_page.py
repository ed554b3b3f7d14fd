"""Writes docs/coverage.md: which public names of JAX, and of the array API standard, are covered.

    python tools/coverage_page.py

JAX's names are those of the installed jax, a development dependency: names that its modules define,
or re-export explicitly (`from … import f as f`). A function that lacks one of JAX's arguments
counts as absent. Intentionally absent names have a reason below; a test checks the reasons.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import logging
import pkgutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coverage.md"

TEXT = """\
# Names of JAX and of the array API standard

This page is written by `tools/coverage_page.py` from jax {version}, the development
dependency. Modules for bindings of MLIR and for TPUs are excluded: see the end.

A name counts as present if it exists at the same path below `shardwise` and accepts every
argument that JAX's accepts.

"""

# Modules that are excluded entirely, with the reason.
LEFT_OUT = {
    "jax.experimental.pallas.mosaic_gpu*": "Mosaic GPU, another language for kernels",
    "jax.experimental.mosaic*": "Mosaic GPU, another language for kernels",
    "jax.experimental.pallas.ops*": "kernels; `shardwise.kernels.library` has some of them",
    "jax.experimental.pallas.fuser*": "a compiler of functions to kernels",
    "jax.experimental.pallas.tpu_sc*": "for the sparse cores of TPUs",
    "jax.extend.pallas*": "internal modules of JAX",
    "jax.extend.mlir*": "bindings of MLIR",
    "jax.interpreters.mlir": "bindings of MLIR",
    "jax.lib*": "bindings of XLA",
    "jax.extend.xla": "bindings of XLA",
    "jax.extend.ifrt_programs": "bindings of XLA",
    "jax.cloud_tpu_init": "for TPUs",
    "jax.experimental.jax2tf*": "for TensorFlow",
    "jax.tools*": "programs, not a library",
    "jax.collect_profile": "a program, not a library",
    "jax.experimental.source_mapper*": "for dumps of JAX's own programs",
    "jax.test_util": "for JAX's own tests",
    "jax.experimental.sparse.test_util": "for JAX's own tests",
    "jax.version": "the version of the package",
    "jax.experimental.hijax": "internal modules of JAX",
    "jax.extend.linear_util": "internal modules of JAX",
    "jax.extend.source_info_util": "internal modules of JAX",
    **{
        f"jax.experimental.{name}": f"its public names are those of `jax.experimental.{above}`"
        for above, parts in {
            "sparse": "ad api bcoo bcsr coo csr random transform util",
            "roofline": "roofline",
            "colocated_python": "api func func_backend obj obj_backend serialization",
        }.items()
        for name in [f"{above}.{part}" for part in parts.split()]
    },
}
_INNER = "internal, not in JAX's documentation"
# Intentionally absent names, by pattern, with the reason.
REASONS: dict[str, str] = {
    **{
        f"jax.{module}.{name}": _INNER
        for module, names in {
            "custom_derivatives": "remat_opt_p",
            "experimental": "cur_qdd primal_tangent_dtype EArray",
            "experimental.custom_partitioning": "custom_partitioning_p",
            "experimental.fused": "fused_p",
            "experimental.jet": (
                "JetTrace JetTracer call_param_updaters jet_fun jet_subtrace traceable"
            ),
            "experimental.mesh_utils": "device_kind_handler_dict",
            "experimental.multihost_utils": "gtl_* ltg_*",
            "experimental.rnn": "lstm_?wd rnn_*",
            "experimental.scheduling_groups": "attr_get",
        }.items()
        for name in names.split()
    },
    **dict.fromkeys(
        ("jax.lax.psend", "jax.lax.precv"),
        "it is for several GPUs, which were not available for testing",
    ),
    **dict.fromkeys(
        ("jax.extend.core.primitives.get_p", "jax.extend.core.primitives.swap_p"),
        "programs have no ops on refs: refs become values",
    ),
    "jax.experimental.fused.fused": (
        "its kernels are for GPUs, which were not available for testing"
    ),
    "jax.numpy.*int1": "StableHLO has no integers of one bit, as `i1` is bool",
    "jax.experimental.transfer.*": (
        "it needs two clusters of devices, which were not available for testing"
    ),
    "jax.experimental.colocated_python.*": (
        "it needs hosts next to a cluster, which were not available for testing"
    ),
}


class Name(NamedTuple):
    """A public name of JAX.

    missing: arguments that our function does not take. absent: whether we lack the name.
    """

    module: str
    name: str
    absent: bool
    missing: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def is_there(self) -> bool:
        return not self.absent and not self.missing

    @property
    def reason(self) -> str:
        fits = [why for pattern, why in REASONS.items() if fnmatch.fnmatch(self.path, pattern)]
        return fits[0] if fits else ""


def modules() -> Iterator[str]:
    """JAX's public modules that count."""
    import jax

    found = pkgutil.walk_packages(jax.__path__, "jax.", onerror=lambda name: None)
    for name in ["jax", *sorted(m.name for m in found)]:
        private = any(part.startswith("_") for part in name.split(".")[1:])
        if not private and not any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT):
            yield name


def imported(name: str) -> ModuleType | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except Exception:  # it requires a package that is not installed
            return None


def public_names(module: ModuleType) -> list[str]:
    """The names that a module defines or re-exports."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted({*listed})
    found: set[str] = set()
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {a.asname for a in node.names if a.asname and a.asname == a.name}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecations
        there = {name for name in found if not name.startswith("_") and hasattr(module, name)}
    kinds = ModuleType, logging.Logger
    return sorted(n for n in there if not isinstance(getattr(module, n), kinds))


def missing_arguments(ours: Any, theirs: Any) -> tuple[str, ...]:
    """JAX's arguments that our function does not take."""
    if inspect.isclass(theirs) or not callable(theirs):
        return ()
    try:
        wanted, found = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
    except (TypeError, ValueError):
        return ()
    if any(p.kind == p.VAR_KEYWORD for p in found.values()):
        return ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple([n for n, p in wanted.items() if p.kind in named and n not in found])


def names() -> list[Name]:
    found: list[Name] = []
    for path in modules():
        theirs = imported(path)
        if theirs is None:
            continue
        ours = imported("shardwise" + path.removeprefix("jax"))
        for name in public_names(theirs):
            own = getattr(ours, name, None) if ours is not None else None
            absent = ours is None or not hasattr(ours, name)
            args = () if absent else missing_arguments(own, getattr(theirs, name))
            found.append(Name(path, name, absent, args))
    return found


def standard() -> tuple[list[str], list[str]]:
    """Names of the array API standard, 2024.12, from NumPy: all names, and the absent ones."""
    import numpy as np

    import shardwise.numpy as jnp

    listed = [*STANDARD.split(), *np.__array_namespace_info__().dtypes()]
    absent = [name for name in listed if not _has(jnp, name)]
    return listed, absent


def _has(module: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


STANDARD = """
e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace
meshgrid ones ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type
abs acos
acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or
bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor
floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2
log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative
nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt
subtract tan tanh trunc take take_along_axis __array_namespace_info__ matmul matrix_transpose
tensordot vecdot broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat
reshape roll squeeze stack tile unstack argmax argmin count_nonzero nonzero searchsorted where
unique_all unique_counts unique_inverse unique_values argsort sort cumulative_prod cumulative_sum
max mean min prod std sum var all any diff
linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh linalg.inv
linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose
linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals
linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm
fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft
fft.fftfreq fft.rfftfreq fft.fftshift fft.ifftshift
"""


def page() -> str:
    import jax

    found = names()
    there = sum(name.is_there for name in found)
    lines = [TEXT.format(version=jax.__version__)]
    lines.append(f"Of {len(found)} names, {there} are present: {100 * there / len(found):.1f} %.\n")
    inner = [name for name in found if not name.is_there and name.reason == _INNER]
    documented = len(found) - len(inner)
    lines.append(
        f"Without the {len(inner)} absent names that are internal to JAX and not in its "
        f"documentation,\n{there} of {documented} are present: "
        f"{100 * there / documented:.1f} %. The internal names are listed separately.\n\n"
    )
    listed, absent = standard()
    lines.append(
        f"Of {len(listed)} names of the array API standard (2024.12), {len(listed) - len(absent)} "
        f"are present{_list(absent, '; not ')}.\n\n"
    )
    lines.append("| module | names | present |\n|---|---|---|\n")
    by_module: dict[str, list[Name]] = {}
    for name in found:
        by_module.setdefault(name.module, []).append(name)
    for module, own in by_module.items():
        lines.append(f"| `{module}` | {len(own)} | {sum(n.is_there for n in own)} |\n")
    lines.append("\n## Absent names\n")
    for module, own in by_module.items():
        lines.append(_absent(module, [name for name in own if name not in inner]))
    lines.append("\n## Internal names\n\n")
    lines.append(f"The {len(inner)} absent names that are not in JAX's documentation.\n")
    for module, own in by_module.items():
        parts = [name.name for name in own if name in inner]
        if parts:
            lines.append(f"\n**`{module}`** ({len(parts)})\n\n-{_list(parts, ' ')}\n")
    lines.append("\n## Excluded modules\n\n")
    lines += [f"- `{pattern}`: {why}\n" for pattern, why in LEFT_OUT.items()]
    return "".join(lines)


def _list(names: list[str], before: str) -> str:
    return before + ", ".join(f"`{n}`" for n in names) if names else ""


def _absent(module: str, names: list[Name]) -> str:
    reasons: dict[str, list[str]] = {}
    for name in names:
        if name.absent:
            reasons.setdefault(name.reason or "not built yet", []).append(name.name)
    less = [f"`{n.name}` ({', '.join(n.missing)})" for n in names if n.missing]
    if not reasons and not less:
        return ""
    parts = [f"\n**`{module}`**\n\n"]
    parts += [f"- {why}:{_list(found, ' ')}\n" for why, found in reasons.items()]
    if less:
        parts.append(f"- without arguments: {', '.join(less)}\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
