"""What `xmap` and the resources of its axes reject: complete messages."""

import numpy as np
import pytest

import shardwise as sw
from shardwise.experimental import maps
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh
from tests.helpers.errors import messages

X = np.arange(48, dtype=np.float32).reshape(8, 6)


@pytest.fixture
def mesh():
    with Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y")) as mesh, maps.serial_loop("l", 2):
        yield mesh


test_errors = pytest.mark.usefixtures("mesh")(
    messages(
        """
xmap(lambda x: x, ["i", ...], ["j", ...])
    ValueError: xmap of <lambda>: out_axes has the axis 'j', which neither in_axes nor axis_sizes
    has; they have 'i'.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"k": "x"})
    ValueError: xmap of <lambda>: axis_resources has the axis 'k', which neither in_axes nor
    axis_sizes has; they have 'i'.
xmap(lambda x: {"a": x}, ["i", ...], [...])(X)
    TypeError: xmap of <lambda>: result['a'] varies along 'i', which its out_axes, [...], do not
    have. Put the axis there, or combine the values with a collective, such as
    `shardwise.lax.psum(x, 'i')`.
xmap(lambda r, x: r.set(x), ([...], ["i", ...]), [])(sw.new_ref(X[0]), X)
    TypeError: xmap of <lambda>: the value written to r varies along 'i', which its in_axes,
    [...], do not have. Put the axis there, or combine the values with a collective, such as
    `shardwise.lax.psum(x, 'i')`.
xmap(lambda x: x, ["i"], ["i"])(X)
    ValueError: xmap of <lambda>: in_axes for x is ['i'], which is for 1 dimension; it is of type
    f32[8,6]. End the list with `...` where more may follow.
xmap(lambda x: x, ["i", ...], {3: "i"})(X)
    ValueError: xmap of <lambda>: out_axes for result is {3: 'i'}, which needs 4 dimensions; it is
    of type f32[6], 2 dimensions including named ones.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"i": "z"})(X)
    NameError: xmap of <lambda>: axis_resources maps 'i' to the resource 'z', which is not in
    scope; resources in scope: 'x', 'y' and 'l'. Enter a mesh that has it, by `with mesh:`, or a
    `serial_loop('z', length)`.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"i": ("x", maps.SerialLoop(3))})(X)
    ValueError: xmap of <lambda>: the axis 'i' has size 8, which is not a multiple of 12, the size
    of its resources, 'x' and SerialLoop(3). Pad it, or use fewer resources.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"i": 4})(X)
    TypeError: xmap of <lambda>: axis_resources maps 'i' to the number 4. For a loop of 4 steps
    pass `SerialLoop(4)`; for devices, pass the name of a mesh axis.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"i": ("x", "x")})
    ValueError: xmap of <lambda>: axis_resources has 'x' twice for 'i'.
xmap(lambda x: sw.lax.psum(x, "i"), ["i", ...], [...], axis_resources={"i": "l"})(X)
    NotImplementedError: shardwise.lax.psum: the axis 'i' runs in a serial loop, one index after
    another, but a collective needs all of them at once. Remove the loop from axis_resources, or
    map the axis to an axis of a mesh.
xmap(lambda x, y: x, ["i", ...], ["i", ...])(X, X.T)
    ValueError: xmap of <lambda>: the axis 'i' must have one size; it has 8 in dimension 0 of x, of
    type f32[8,6], and 6 in dimension 0 of y, of type f32[6,8].
xmap(lambda x: x, ["i", ...], ["i", ...], axis_sizes={"i": 3})(X)
    ValueError: xmap of <lambda>: the axis 'i' must have one size; it has 8 in dimension 0 of x, of
    type f32[8,6], and 3 in axis_sizes.
xmap(lambda x: x, ["i", ...], ["i", ...])({})
    ValueError: xmap of <lambda>: the size of the axis 'i' is unknown, as no array of the arguments
    has it. Give it in axis_sizes.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_sizes={"i": "x"})
    ValueError: xmap of <lambda>: axis_sizes must be non-negative ints; got 'x' of type str for
    'i'.
xmap(lambda x: x, ["i", "i"], ["i"])
    ValueError: xmap of <lambda>: in_axes: ['i', 'i'] has 'i' twice; the names of dimensions must
    be distinct.
xmap(lambda x: x, {-1: "i"}, ["i"])
    ValueError: xmap of <lambda>: in_axes: {-1: 'i'} has the dimension -1; negative dimensions are
    not supported.
xmap(lambda x: x, [..., "i"], ["i"])
    ValueError: xmap of <lambda>: in_axes: `...` may only be the last of a list; got [..., 'i'].
xmap(lambda x: x, 0, ["i"])
    TypeError: xmap of <lambda>: in_axes must have dicts (dimension → name), lists of names, or
    pytrees of them; got 0 of type int.
xmap(lambda x: x, ["i", "j"], ["i", "j"], axis_resources={"i": "y", "j": "y"})(X)
    JAXTypeError: xmap of <lambda>: the axes 'i' and 'j' both run over 'y', and x has both of them.
    Give them different resources.
xmap(sw.vmap(lambda x: sw.lax.psum(x, "i"), axis_name="x"), ["i", ...], ["i", ...],
        axis_resources={"i": "x"})(X)
    ValueError: vmap: an axis named 'x' would shadow the mesh axis that the axis 'i' of an
    enclosing map runs over. Rename one of them.
xmap(lambda x: xmap(lambda y: y, ["j"], ["j"], axis_resources={"j": "y"})(x), ["i", ...], ["i",
        ...], axis_resources={"i": "y"})(X)
    JAXTypeError: xmap of <lambda>: axis_resources maps 'j' to the mesh axis 'y', over which an
    enclosing map already runs. Choose another, or none.
xmap(lambda x: sw.lax.psum(x, "x"), ["i", ...], ["i", ...], axis_resources={"i": "x"})(X)
    NameError: shardwise.lax.psum: unbound axis name: x. The axes in scope are: 'i'. 'x' is an axis
    of the mesh, which is only bound inside `shardwise.shard_map`. To bind an axis name, wrap the
    call in a map: `shardwise.vmap(f, axis_name='x')` or `shardwise.shard_map`.
xmap(lambda x: x, ["i"], ["i"])(x=X)
    TypeError: xmap of <lambda> takes arguments by position, for which in_axes has names; got 'x'
    by keyword. Pass them by position, or bind them with functools.partial.
maps.serial_loop("x", 2).__enter__()
    ValueError: serial_loop: 'x' is already the name of an axis in scope, which the loop would
    shadow. Rename one of them.
Mesh(np.array(sw.devices()), ("l",)).__enter__()
    ValueError: entering Mesh('l': 8) would shadow the axis 'l' of size 2, which something other
    than a mesh (a map or a serial loop) has put in scope. Rename one of them.
xmap(lambda x: x, ["i", ...], ["i", ...], axis_resources={"i": {"x": 1}})(X)
    TypeError: xmap of <lambda>: axis_resources must contain names of mesh axes or loops,
    `SerialLoop`s, or tuples of them; got {'x': 1} of type dict for 'i'.
maps.SerialLoop(0)
    ValueError: SerialLoop: length, the number of parts, must be a positive int; got 0 of type int.
""",
        globals(),
    )
)


def test_a_ref_is_no_result():
    with pytest.raises(ValueError) as error:
        xmap(lambda r: r, ["i", ...], ["i", ...])(sw.new_ref(X))
    assert str(error.value).startswith("xmap of <lambda> returned Ref{f32[6]}, made at ")
    assert str(error.value).endswith("return its value, `ref[...]` or `freeze(ref)`.")
