"""`custom_partitioning`: a function for which the user defines the computation per device.

    @custom_partitioning
    def f(x):
        return fft(x)

    f.def_partition(partition, sharding_rule="... i -> ... i")

The rule lets Shardy shard operands and results. When a program is compiled, the function
`partition` is called to define the computation for operands and results with these shardings.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.caches import exact, make_room
from shardwise._src.base.context import current
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.control.bodies import staged
from shardwise._src.core.infer import is_operand, type_of
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared
from shardwise._src.custom.custom_calls import by_position
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import pluralize, short_repr, to_register
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.partitioning.definition import WHO, CallRule, PartitionDefinition
from shardwise._src.partitioning.partitioning_op import custom_partitioning_call
from shardwise._src.partitioning.sharding_rules import SdyShardingRule, rule_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.extended import ExtendedDType

CALLS_REMEMBERED = 256


class custom_partitioning:
    """A function for which the user defines the computation per device.

        @custom_partitioning
        def product(x, y):                        # the semantics
            return x @ y

        def partition(mesh, arg_shapes, result_shape):
            x, y = [s.sharding for s in arg_shapes]
            axes = x.spec[1]                      # i is sharded over these
            def lower_fn(x, y):                   # computation on a device's shards
                return lax.psum(x @ y, axes) if axes else x @ y
            y = NamedSharding(mesh, P(axes, None))
            return mesh, lower_fn, NamedSharding(mesh, P(x.spec[0], None)), (x, y)

        product.def_partition(
            partition, sharding_rule="b i, i o -> b o", reduction_factors=("i",))

    On one device, and in `shardwise.shard_map`, the function itself runs. Over several, also
    eagerly, XLA's partitioner calls `partition` when it compiles a program. Derivatives are those
    of a `custom_vjp` or `custom_jvp` around it. Under `vmap` the user's functions see shapes
    without the batch dimension, and `lower_fn` is mapped, over axes of the mesh that it does not
    use.

    Differences from JAX: there is a rule for `vmap`; eager calls use `partition`, too; without a
    `sharding_rule`, `infer_sharding_from_operands` is used to derive one. (JAX rejects the first
    and the last.)

    Args:
      fun: a function of pytrees of arrays, by position; it must not capture tracers.
      static_argnums: positions of arguments that are not arrays. The functions of `def_partition`
        receive them first.
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: int | Sequence[int] = ()):
        if not callable(fun):
            raise TypeError(f"custom_partitioning takes a function; got {fun!r}.")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = name_of(fun)
        one = isinstance(static_argnums, int)
        self.static_argnums: tuple[int, ...] = (static_argnums,) if one else tuple(static_argnums)
        self.partition: Callable[..., Any] | None = None
        self.infer_sharding_from_operands: Callable[..., Any] | None = None
        self.propagate_user_sharding: Callable[..., Any] | None = None
        self.sharding_rule: Any = None
        self._definition: PartitionDefinition | None = None
        self._calls: dict[tuple[Any, ...], Any] = {}

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Defines the computation on each device; returns `partition`.

        Args:
          partition: `(*static, mesh, arg_shapes, result_shape)` → `(mesh, lower_fn,
            result_shardings, arg_shardings)`. Shapes have `shape`, `dtype` and `sharding`;
            `arg_shapes` is the tuple of the arguments, `result_shape` has the result's pytree. The
            returned shardings have the same structure, but may differ: operands are resharded
            first. `lower_fn` takes and returns shards; collectives name axes of the mesh. Shards of
            dimensions that are not divisible are padded with zeros.
          infer_sharding_from_operands: `(*static, mesh, arg_shapes, result_shape)` → shardings in
            the result's pytree. Only called without a `sharding_rule`: with operands that are
            sharded along one dimension, to find which dimensions correspond, and for types over
            explicit axes.
          propagate_user_sharding: not called: Shardy uses the rule in both directions.
          decode_shardings: whether shardings are `NamedSharding`s over the mesh, if these can
            express them; else they are `GSPMDSharding`s.
          sharding_rule: how dimensions correspond: `"b i, i o -> b o"`, an `SdyShardingRule`,
            or a function `(*static, mesh, operand_types, result_types)` that returns one of these,
            or a pair of a string and a dictionary of the keyword arguments below.
          reduction_factors, need_replication_factors, permutation_factors, factor_sizes: for a rule
            that is a string, as for `SdyShardingRule`.

        Raises:
          ValueError: for an invalid rule, and for keyword arguments if the rule is not a string.
        """
        rest: dict[str, Any] = dict(factor_sizes)
        for kind, factors in (
            ("reduction_factors", reduction_factors),
            ("need_replication_factors", need_replication_factors),
            ("permutation_factors", permutation_factors),
        ):
            if factors != ():
                rest[kind] = factors
        for what, given in (
            ("partition", partition),
            ("infer_sharding_from_operands", infer_sharding_from_operands),
        ):
            if not callable(given) and (given is not None or what == "partition"):
                raise TypeError(f"{WHO} {self.name}: {what} must be a function; got {given!r}.")
        if isinstance(sharding_rule, str):
            sharding_rule = rule_of(sharding_rule, **rest)
        elif rest:
            raise ValueError(
                f"{WHO} {self.name}: {', '.join(rest)} can only be combined with a sharding_rule "
                f"that is a string; got {short_repr(sharding_rule)}. Put them into the "
                "SdyShardingRule."
            )
        elif not (
            sharding_rule is None
            or isinstance(sharding_rule, SdyShardingRule)
            or callable(sharding_rule)
        ):
            raise TypeError(
                f"{WHO} {self.name}: sharding_rule must be a string such as 'b i, i o -> b o', an "
                f"SdyShardingRule, or a function that returns one; got {short_repr(sharding_rule)}."
            )
        infer = infer_sharding_from_operands
        if sharding_rule is None and infer is None and propagate_user_sharding is not None:
            raise NotImplementedError(
                f"{WHO} {self.name}: propagate_user_sharding alone does not specify which "
                "dimensions of operands and results correspond. Pass a sharding_rule, such as "
                "'b i, i o -> b o'."
            )
        self.partition, self.infer_sharding_from_operands = partition, infer
        self.propagate_user_sharding, self.sharding_rule = propagate_user_sharding, sharding_rule
        self._definition = PartitionDefinition(
            partition, infer, bool(decode_shardings), sharding_rule
        )
        self._calls.clear()
        return partition

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.fun)

    @hides_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        if self._definition is None:
            raise AttributeError(
                f"{WHO} {self.name} has no partition: define it with "
                f"{self.name}.def_partition(partition, sharding_rule=...)."
            )
        args = by_position(self._signature, f"{WHO} {self.name}", "`partition`", args, kwargs)
        static, given = self._separated(args)
        leaves, tree = flatten(tuple(given))
        self._check_leaves(leaves, tree)
        rule, program = self._staged(static, args, leaves, tree)
        outs = custom_partitioning_call(*leaves, program=program, rule=rule)
        return rule.out_tree.unflatten(outs)

    def _separated(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
        """Static arguments, in the order of `static_argnums`, and the others."""
        count = len(args)
        if strange := [n for n in self.static_argnums if not -count <= n < count]:
            raise ValueError(
                f"{WHO} {self.name}: static_argnums has {strange[0]}, but the call has "
                f"{pluralize(count, 'argument')}."
            )
        places = [n % count for n in self.static_argnums]
        static = tuple([args[n] for n in places])
        for n, x in zip(places, static, strict=True):
            if any(isinstance(leaf, Tracer) for leaf in flatten(x)[0]):
                raise UnexpectedTracerError(
                    f"{WHO} {self.name}: argument {n} is static, by static_argnums, but contains "
                    "a traced value. Pass a concrete value, or remove it from static_argnums."
                )
        return static, [x for n, x in enumerate(args) if n not in places]

    def _check_leaves(self, leaves: Sequence[Any], tree: Any) -> None:
        for i, x in enumerate(leaves):
            path = functools.partial(path_in, "args", tree, i)
            if not is_operand(x):
                raise TypeError(
                    f"{WHO} {self.name}: {path()} is {short_repr(x)}, which is not an array. Name "
                    f"its position in static_argnums if it is a constant.{to_register(x)}"
                )
            if isinstance(type_of(x).dtype, ExtendedDType):
                raise TypeError(
                    f"{WHO} {self.name}: {path()} is of type {type_of(x).str_short(True)}: keys "
                    "are arrays of integers on devices. Pass `shardwise.random.key_data(key)`."
                )

    def _staged(
        self, static: tuple[Any, ...], args: tuple[Any, ...], leaves: Sequence[Any], tree: Any
    ) -> tuple[CallRule, Program]:
        """Rule and program of a call; cached if static arguments can be distinguished."""
        assert self._definition is not None
        definition = self._definition
        sets_result_shardings = definition.rule is not None or definition.infer is not None
        types = [type_of(x) for x in leaves]
        if sets_result_shardings:
            types = [t.update(spec=None, mesh=None) if t.mesh is not None else t for t in types]
        key = (static, exact(static), tree, *types, current().trace_key)
        try:
            if (found := self._calls.get(key)) is not None:
                return found
            keeps = True
        except TypeError:  # unhashable static arguments
            keeps, key = False, (object(),)
        places = [n % len(args) for n in self.static_argnums]

        def fun(*xs: Any) -> Any:
            rest = iter(tree.unflatten(xs))
            return self.fun(*[x if n in places else next(rest) for n, x in enumerate(args)])

        body = staged(fun, types, "custom_partitioning", self.name)
        if body.captures:
            raise UnexpectedTracerError(
                f"{WHO} {self.name} uses a traced value from outside, which "
                f"`partition` cannot see. Pass it to {self.name} as an argument."
            )
        program = body.program.replace(consts=body.outside)
        rule = CallRule(self.name, (self, definition, *key), definition, static, tree, body.tree)
        found = rule, shared(program)
        if keeps and not body.outside:
            make_room(self._calls, CALLS_REMEMBERED)
            self._calls[key] = found
        return found

    def __repr__(self) -> str:
        return f"<{WHO} {self.name}>"
