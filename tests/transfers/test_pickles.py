"""Pickles name one function with a stable path, and contain their format version."""

import copy
import pickle
import pickletools
import subprocess
import sys
from contextvars import ContextVar
from enum import EnumType
from importlib import import_module
from types import FunctionType, ModuleType, UnionType

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import kernels
from shardwise._src.base.context import CURRENT
from shardwise._src.base.pickles import FORM, _readers, restored
from shardwise._src.maps.pmap_calls import Options
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.layout import AUTO, Format, Layout
from shardwise.compat import Chunked, NoSharding, Replicated, ShardedAxis, ShardingSpec, Unstacked
from shardwise.experimental.maps import thread_resources
from shardwise.experimental.pjit import pjit
from shardwise.extend.core import Primitive
from shardwise.sharding import (
    AxisType,
    GSPMDSharding,
    Mesh,
    PartitionSpec,
    PmapSharding,
    PositionalSharding,
    SingleDeviceSharding,
)
from tests.helpers.errors import message
from tests.helpers.patience import seconds
from tests.test_faces import FACES

DEVICES = np.array(sw.devices()[:4]).reshape(2, 2)
MESH = Mesh(DEVICES, ("a", "b"), (AxisType.Auto, AxisType.Explicit))
NAMED = sw.NamedSharding(MESH, PartitionSpec("a", PartitionSpec.UNCONSTRAINED))
VALUES = {
    "array": jnp.arange(6.0),
    "weak": jnp.asarray(2),
    "bf16": jnp.ones(3, jnp.bfloat16),
    "keys": sw.random.split(sw.random.key(1), 3),
    "mesh": MESH,
    "abstract": MESH.abstract_mesh,
    "spec": PartitionSpec(("a", "b"), None, unreduced={"c"}),
    "named": NAMED,
    "tiling": NAMED.tiling(2),
    "gspmd": GSPMDSharding(sw.devices()[:4], NAMED.tiling(2)),
    "single": SingleDeviceSharding(sw.devices()[1]),
    "device": sw.devices()[2],
    "layout": Layout((1, 0)),
    "format": Format(Layout((0, 1)), NAMED),
    "auto": AUTO,
    "type": sw.typeof(jnp.arange(6.0)),
    "key dtype": sw.random.key(0).dtype,
    "pmap": PmapSharding.default((4, 2)),
    "positional": PositionalSharding(sw.devices()[:4]).reshape(2, 2).replicate(1),
    "op": sw.make_jaxpr(jnp.sin)(1.0).eqns[0].op,
    "resources": thread_resources,
    "typed": sw.typeof(jnp.zeros((2, 2), device=sw.NamedSharding(MESH, PartitionSpec(None, "b")))),
}


def named_modules(pickled):
    """The modules that a pickle names."""
    texts: list[str] = []
    for op, arg, _ in pickletools.genops(pickled):
        if op.name == "STACK_GLOBAL":
            yield texts[-2]
        elif op.name == "GLOBAL":
            yield arg.split()[0]
        if isinstance(arg, str):
            texts.append(arg)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_pickles_name_no_module_of_the_machine(name, protocol):
    value = VALUES[name]
    pickled = pickle.dumps(value, protocol)
    assert b"shardwise._src" not in pickled
    assert b"shardwise._pickles" in pickled
    again = pickle.loads(pickled)
    if isinstance(value, sw.Array):
        assert again.aval is value.aval and bool((again == value).all())
    else:
        assert again is value or again == value


def test_only_one_place_is_named():
    ours = {
        m
        for n, v in VALUES.items()
        for m in named_modules(pickle.dumps(v))
        if "shardwise" in m and n != "pmap"
    }
    assert ours == {"shardwise._pickles"}
    inside = {m for m in named_modules(pickle.dumps(VALUES["pmap"])) if "shardwise" in m}
    assert inside == {"shardwise._pickles", "shardwise.compat"}


def test_pickles_by_value_find_the_place():
    """cloudpickle serializes a function of an unimported module, with everything it uses."""
    program = (
        "import copyreg, sys\n"
        "import shardwise.numpy as jnp\n"
        "from shardwise._src.base.pickles import restored\n"
        "copyreg.dispatch_table[type(jnp.zeros(2))](jnp.zeros(2))\n"
        "assert getattr(sys.modules[restored.__module__], restored.__name__) is restored\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=seconds(60))


def test_what_transformed_functions_refer_to_is_pickled():
    assert pickle.loads(pickle.dumps(flatten))([1, 2])[0] == [1, 2]


@sw.jit
def of_a_module(x):
    return x * 2


def test_jitted_functions_are_pickled_by_name_or_by_what_they_are_made_of():
    x = jnp.arange(3.0)
    assert of_a_module(x).tolist() == [0, 2, 4]  # its compiled programs are not part of it
    assert pickle.loads(pickle.dumps(of_a_module)) is of_a_module
    assert copy.copy(of_a_module) is copy.deepcopy(of_a_module) is of_a_module
    for fun in (sw.jit(jnp.sin), sw.jit(jnp.sum, static_argnames="axis", keep_unused=True)):
        wanted = fun(x)
        pickled = pickle.dumps(fun)
        assert b"shardwise._src" not in pickled
        again = pickle.loads(pickled)
        assert again is not fun and again._options == fun._options
        np.testing.assert_array_equal(again(x), wanted)


def test_the_context_is_that_of_whoever_reads():
    assert pickle.loads(pickle.dumps(CURRENT)) is CURRENT
    other = ContextVar("other")
    says = message(TypeError, pickle.dumps, other)
    assert says.endswith(": a ContextVar exists in one process only.")


RECORDS = ("shardwise.example_libraries.", "shardwise.extend.random", "shardwise.prng")
# The state of the process.
NOT_PICKLED = {
    "upstream_dialects",
    "default_registry",
    "axis_primitive_batchers",
    "primitive_batchers",
    "primitive_jvps",
    "primitive_transposes",
    "fancy_primitive_batchers",
    "TS_CONTEXT",
    "custom_partial_eval_rules",
    "partial_eval_jaxpr_custom_rules",
}


def public_objects():
    """(module, name, object) of each public name except modules and unions (annotations)."""
    for face in FACES:
        module = import_module(face)
        for name in dir(module):
            x = getattr(module, name)
            # Layers and generators are records of functions, as in JAX, and not meant to be stored.
            made = face.startswith(RECORDS) and not isinstance(x, FunctionType | type)
            if name[0] != "_" and not made and not isinstance(x, ModuleType | UnionType):
                yield face, name, x


def test_public_objects_are_pickled_by_public_names():
    found = []
    for face, name, x in public_objects():
        if name in NOT_PICKLED or isinstance(x, Primitive):  # whose rules are closures
            continue
        pickled = pickle.dumps(x)
        if b"shardwise._src" in pickled:
            found.append(f"{face}.{name} of type {type(x).__name__}")
        again = pickle.loads(pickled)
        if isinstance(x, FunctionType | type):
            assert again is x, (face, name)
        elif type(x).__module__.split(".")[0] == "shardwise":
            assert type(again) is type(x) and repr(again) == repr(x), (face, name)
    assert not found


def test_members_of_public_enumerations_are_pickled_by_public_names():
    kinds = {id(x): x for _, _, x in public_objects() if isinstance(x, EnumType)}
    assert len(kinds) >= 7
    for kind in kinds.values():
        for member in kind:
            pickled = pickle.dumps(member)
            assert b"shardwise._src" not in pickled
            assert pickle.loads(pickled) is member


def test_parts_of_older_shardings():
    spec = ShardingSpec(
        [NoSharding(), Chunked([2]), Unstacked(2)], [ShardedAxis(0), ShardedAxis(1), Replicated(2)]
    )
    for x in (spec, *spec.sharding, *spec.mesh_mapping):
        pickled = pickle.dumps(x)
        assert b"shardwise._src" not in pickled and pickle.loads(pickled) == x


def test_public_names_are_those_that_objects_show():
    assert repr(sw.Array) == "<class 'shardwise.Array'>"
    assert (jnp.where.__module__, sw.grad.__module__) == ("shardwise.numpy", "shardwise")
    assert repr(type(MESH.axis_types[0])) == "<enum 'AxisType'>"
    assert AxisType.__module__ == PartitionSpec.__module__ == "shardwise.sharding"


def test_refs():
    ref = sw.new_ref(jnp.arange(3.0))
    pickled = pickle.dumps(ref)
    assert set(filter(lambda m: "shardwise" in m, named_modules(pickled))) == {"shardwise._pickles"}
    assert pickle.loads(pickled)[...].tolist() == [0, 1, 2]


def test_functions_of_pmap_without_their_programs():
    own = Options("pmap of sin", jnp.sin, "i", 0, 0, (), None, "cpu", 8, (), None)
    own.runs["form"] = lambda x: x  # which no pickle can contain
    own.ready["signature"] = own.runs["form"], None
    again = pickle.loads(pickle.dumps(own))
    assert (again.fun, again.axis_name, again.axis_size) == (jnp.sin, "i", 8)
    assert again.runs == again.ready == {}


def test_another_process_reads_them():
    late = [VALUES[name] for name in ("op", "pmap", "positional", "resources")]
    mapped = Options("pmap of sin", sw.jit(jnp.sin), "i", 0, 0, (), None, "cpu", 8, (), None)
    late += [sw.new_ref(jnp.ones(2)), sw.jit(jnp.sin), pjit(jnp.sin), mapped]
    late += [kernels.Block((8,), None, kernels.VMEM), kernels.Squeezed()]
    pickled = pickle.dumps([VALUES["keys"], jnp.arange(3.0), *late])
    code = f"import pickle; keys, x, *late = pickle.loads({pickled!r}); print(keys.dtype, x)"
    code += "; print(*late)"
    code += "\nfrom shardwise._src.base import pickles; print(*sorted(pickles._readers), sep=',')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=True,
    )
    first, second, kinds = run.stdout.splitlines()
    assert first == "key<fry> [0. 1. 2.]" and second == " ".join(map(str, late))
    of_compilers = {"described device"}  # which may be missing
    assert kinds.split(",") == sorted({*_readers} - of_compilers)


@pytest.mark.parametrize("version", [0, 2])
def test_another_form_is_refused(version):
    assert message(pickle.UnpicklingError, restored, version, "array", np.arange(3)) == (
        f"the pickle of a shardwise array has format {version}, from another version of shardwise; "
        "this version reads format 1. Read it with the version that wrote it, and save the values "
        "with shardwise.numpy.save, whose files all versions can read."
    )


def test_an_unknown_kind_is_refused():
    assert message(pickle.UnpicklingError, restored, FORM, "parcel") == (
        "the pickle contains a shardwise parcel, which does not exist in this version. Read it "
        "with the version that wrote it, and save the values with shardwise.numpy.save, whose "
        "files all versions can read."
    )
