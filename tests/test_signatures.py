"""Signatures of public functions: their return annotations, and the parameters that jax has."""

import ast
import contextlib
import importlib
import inspect
import textwrap
from types import ModuleType
from typing import get_overloads

import jax
import pytest

import shardwise as sw
from tests.test_faces import FACES, names

# Public functions whose result type depends on the caller's functions, pytrees or options:
# their return annotation is `Any`, listed here with what they return.
OF_ANY_TYPE = {
    "shardwise.eval_shape": "a tree of ShapeDtypeStructs, like the result of a function",
    "shardwise.device_get": "a tree with NumPy's arrays for arrays",
    "shardwise.device_put_replicated": "a tree of arrays",
    "shardwise.device_put_sharded": "a tree of arrays",
    "shardwise.pure_callback": "a tree like `result_shape_dtypes`",
    "shardwise.experimental.multihost_utils.host_local_array_to_global_array": "a tree of arrays",
    "shardwise.experimental.multihost_utils.global_array_to_host_local_array": "a tree of arrays",
    "shardwise.experimental.multihost_utils.process_allgather": "a tree with NumPy's arrays",
    "shardwise.experimental.multihost_utils.broadcast_one_to_all": "a tree with NumPy's arrays",
    "shardwise.checkpoints.load_orbax": "the tree that was saved",
    "shardwise.checkpoints.restore": "the tree that was saved",
    "shardwise.export.symbolic_args_specs": "a tree of ShapeDtypeStructs",
    "shardwise.core.dimension_as_value": "an int, or an array",
    "shardwise.core.extend_axis_env": "a context manager",
    "shardwise.core.lattice_join": "a type, or None",
    "shardwise.core.max_dim": "a size",
    "shardwise.core.min_dim": "a size",
    "shardwise.core.non_negative_dim": "a size",
    "shardwise.core.raise_to_shaped": "a type",
    "shardwise.experimental.array_serialization.pytree_serialization.load": "a tree of arrays",
    "shardwise.experimental.array_serialization.pytree_serialization.load_pytreedef": "a tree",
    "shardwise.experimental.io_callback": "a tree like `result_shape_dtypes`",
    "shardwise.experimental.ode.odeint": "a tree like `y0`, with a dimension for the times",
    "shardwise.example_libraries.optimizers.clip_grads": "a tree of gradients",
    "shardwise.example_libraries.optimizers.unpack_optimizer_state": "a tree of JoinPoints",
    "shardwise.experimental.compute_on.compute_on": "a context manager, or a function",
    "shardwise.experimental.compute_on.compute_on2": "a function, or a decorator",
    "shardwise.experimental.scheduling_groups.xla_metadata_call": "a function, or a decorator",
    "shardwise.experimental.xla_metadata.xla_metadata_call2": "a function, or a decorator",
    "shardwise.experimental.xla_metadata.set_xla_metadata": "a context manager, or a tree",
    "shardwise.extend.ffi.pycapsule": "a capsule of Python's, which has no name as a type",
    "shardwise.lax.reduce_window": "a tree of arrays, like the operand",
    "shardwise.debug.breakpoint": "the token, a tree",
    "shardwise.tree_map": "a tree of what a function gives",
    "shardwise.tree.map_with_path": "a tree of what a function gives",
    "shardwise.tree.broadcast": "a tree with leaves of another one",
    "shardwise.tree_transpose": "a tree of trees",
    "shardwise.tree_unflatten": "a tree of any structure",
    "shardwise.tree.static": "the field of a dataclass, to be assigned to an attribute",
    "shardwise.custom_derivatives.zero_from_primal": "zeros, or a SymbolicZero",
    "shardwise.custom_derivatives.custom_vjp_primal_tree_values": "a tree of arrays",
    "shardwise.named.like": "a tree of texts",
    "shardwise.named.shapes": "a tree of ShapeDtypeStructs",
    "shardwise.named.shardings": "a tree of NamedShardings",
    "shardwise.core.call_impl": "what a function gives",
    "shardwise.core.concrete_or_error": "what a function gives",
    "shardwise.core.primal_dtype_to_tangent_dtype": "a dtype",
    "shardwise.interpreters.xla.apply_primitive": "an array, or a list of them",
    "shardwise.dtypes.finfo": "NumPy's finfo, or that of ml_dtypes",
    "shardwise.dtypes.iinfo": "NumPy's iinfo, or that of ml_dtypes",
}


def functions():
    """All public functions that the library defines, by their first public name."""
    found = {}
    for face in FACES:
        module = importlib.import_module(face)
        for name in names(module):
            value = getattr(module, name)
            inner = inspect.unwrap(value) if callable(value) else value
            if inspect.isfunction(inner) and inner.__module__.split(".")[0] == "shardwise":
                found.setdefault(inner, f"{face}.{name}")
    return {name: fun for fun, name in found.items()}


def test_functions_say_what_they_give():
    silent = {
        name
        for name, fun in functions().items()
        if fun.__annotations__.get("return", "Any") == "Any" and not get_overloads(fun)
    }
    assert silent == set(OF_ANY_TYPE)


def test_functions_say_what_they_take():
    silent = [
        f"{name}: {p.name}"
        for name, fun in functions().items()
        for p in inspect.signature(fun).parameters.values()
        if p.annotation is inspect.Parameter.empty
    ]
    assert silent == []


def takes(function, name):
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def pairs():
    """(name, jax's function, ours) for public functions and array methods that both have."""
    for face in FACES:
        try:
            theirs = importlib.import_module(face.replace("shardwise", "jax", 1))
        except ImportError:
            continue
        ours = importlib.import_module(face)
        for name in names(ours):
            other = getattr(theirs, name, None)
            if callable(other) and not isinstance(other, type | ModuleType):
                yield f"{face}.{name}", other, getattr(ours, name)
    for name in names(sw.Array):
        yield f"Array.{name}", getattr(jax.Array, name, None), getattr(sw.Array, name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_out_sharding_is_taken_where_jax_takes_it():
    missing = [
        name
        for name, theirs, ours in pairs()
        if takes(theirs, "out_sharding") and not takes(ours, "out_sharding")
    ]
    assert missing == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_initializers_take_out_sharding():
    for name in names(sw.nn.initializers):
        if name not in ("Axes", "Initializer", "zeros", "ones"):
            made = getattr(sw.nn.initializers, name)
            args = {"constant": (1.0,), "variance_scaling": (1.0, "fan_in", "normal")}.get(name, ())
            assert takes(made(*args), "out_sharding"), name


# Arguments of public functions that have no effect, as the docstrings state.
OF_NO_EFFECT = {
    "intersect1d": "assume_unique",
    "setxor1d": "assume_unique",
    "isin": "assume_unique",
    "nan_to_num": "copy",
    "polyval": "unroll",
    "top_k": "sorted",
    "unique": "sorted",
}


def test_no_argument_is_ignored():
    ignored = {}
    for face in ("shardwise.numpy", "shardwise.numpy.linalg", "shardwise.numpy.fft"):
        for name in names(importlib.import_module(face)):
            fun = inspect.unwrap(getattr(importlib.import_module(face), name))
            if inspect.isfunction(fun):
                ignored |= {name: x for x in unused(fun)}  # noqa: B035 (at most one)
    for name in names(sw.Array):
        fun = getattr(sw.Array, name)
        if inspect.isfunction(fun):
            ignored |= {f"Array.{name}": x for x in unused(fun) if x != "self"}
    assert ignored == OF_NO_EFFECT


def unused(fun):
    """The parameters that a function's code never reads."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fun))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        return []
    read = {n.id for x in tree.body for n in ast.walk(x) if isinstance(n, ast.Name)}
    return [name for name in inspect.signature(fun).parameters if name not in read]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numpy_takes_what_jax_takes():
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = []
    for path, theirs, ours in pairs():
        if path.startswith(("shardwise.numpy.", "Array.")) and not isinstance(ours, property):
            with contextlib.suppress(TypeError, ValueError):
                given = inspect.signature(ours).parameters
                missing += [
                    f"{path}: {name}"
                    for name, p in inspect.signature(theirs).parameters.items()
                    if p.kind in named and name not in given
                ]
    assert missing == []
