"""Optimizers as three functions: the initial state, a step, and the parameters of a state.

    init, update, get_params = adam(1e-3)
    state = init(params)                      # params: any pytree of arrays
    state = update(i, grads, state)           # step i = 0, 1, …; grads in the tree of params
    get_params(state)

Each is written for one array and mapped over pytrees by `optimizer`. A state is a pytree, is
sharded like the parameters, and works with `jit`, checkpoints and so on. Step sizes are numbers or
*schedules*, functions of the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from shardwise._src.numpy.creation import array, asarray, zeros, zeros_like
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.products.contractions import vdot
from shardwise._src.numpy.result_types import ndim
from shardwise._src.numpy.shapes import reshape
from shardwise._src.numpy.statistics.reductions import sum as sum_of
from shardwise._src.numpy.unary import absolute, floor, sqrt, square
from shardwise._src.runtime.pytree import flatten
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.tree.functions import unflatten
from shardwise._src.tree.registration import register_pytree_node
from shardwise._src.values.binary import maximum, minimum

Array = Params = State = Any
Updates = Params  # with the structure of the parameters


class OptimizerState(NamedTuple):
    """The leaves of each parameter's state; the structure of parameters; of each state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(
    OptimizerState,
    lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
    lambda trees, children: OptimizerState(children[0], *trees),
)

Step = int
Triple = tuple[Callable, Callable, Callable]  # init, update and get_params for one array
InitFn = Callable[[Params], OptimizerState]
UpdateFn = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn = Callable[[OptimizerState], Params]
Schedule = Callable[[Step], Any]


class Optimizer(NamedTuple):
    """The three functions of an optimizer."""

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Maps a factory of functions (init, update, get_params) for one array over pytrees of arrays.

    `init(x)` returns a state, which is a pytree, `update(i, g, state)` the next state.

    Raises:
      TypeError: by `update`, if the structures of gradients and parameters, or of states, differ.
    """

    @functools.wraps(opt_maker)
    def maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @functools.wraps(init)
        def tree_init(x0_tree: Any) -> OptimizerState:
            leaves, tree = flatten(x0_tree)
            return _packed(tree, [init(x) for x in leaves])

        @functools.wraps(update)
        def tree_update(i: Any, grad_tree: Any, opt_state: OptimizerState) -> OptimizerState:
            grads, tree = flatten(grad_tree)
            if tree != opt_state.tree_def:
                raise TypeError(
                    "optimizer update: the gradients must have the pytree structure of the "
                    f"parameters, {opt_state.tree_def}; got {tree}."
                )
            new = [update(i, g, s) for g, s in zip(grads, _states(opt_state), strict=True)]
            found = _packed(tree, new)
            for was, now in zip(opt_state.subtree_defs, found.subtree_defs, strict=True):
                if was != now:
                    raise TypeError(
                        "an optimizer's update must return a state with the pytree structure of "
                        f"its argument, {was}; it returned {now}."
                    )
            return found

        @functools.wraps(get_params)
        def tree_get_params(opt_state: OptimizerState) -> Any:
            return unflatten(opt_state.tree_def, map(get_params, _states(opt_state)))

        return Optimizer(tree_init, tree_update, tree_get_params)

    return maker


def _packed(tree: Any, states: list[Any]) -> OptimizerState:
    pairs = [flatten(s) for s in states]
    return OptimizerState(tuple([x for x, _ in pairs]), tree, tuple([t for _, t in pairs]))


def _states(opt_state: OptimizerState) -> list[Any]:
    pairs = zip(opt_state.subtree_defs, opt_state.packed_state, strict=True)
    return [unflatten(tree, leaves) for tree, leaves in pairs]


def _first(state: Any) -> Any:
    return state[0]


# -- optimizers for one array; `step_size` is a number or a schedule --


@optimizer
def sgd(step_size: Any) -> Triple:
    """Gradient descent."""
    rate = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> Triple:
    """Gradient descent with momentum (Polyak)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return (lambda x: (x, zeros_like(x))), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> Triple:
    """Gradient descent with Nesterov momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return (lambda x: (x, zeros_like(x))), update, _first


def _by_root(g: Any, total: Any) -> Any:
    """g / √total; 0 where the total is 0."""
    return g * where(total > 0, 1 / sqrt(total), 0.0)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Triple:
    """Adagrad with momentum. Source: Duchi et al., JMLR 12 (2011)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + square(g)
        m = (1 - momentum) * _by_root(g, squares) + momentum * m
        return x - rate(i) * m, squares, m

    return (lambda x: (x, zeros_like(x), zeros_like(x))), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Triple:
    """RMSProp. gamma: decay of the mean square; eps: added to it under the root."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean = state
        mean = gamma * mean + (1 - gamma) * square(g)
        return x - rate(i) * g / sqrt(mean + eps), mean

    return (lambda x: (x, zeros_like(x))), update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Triple:
    """RMSProp with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, m = state
        mean = gamma * mean + (1 - gamma) * square(g)
        m = momentum * m + rate(i) * g / sqrt(mean + eps)
        return x - m, mean, m

    return (lambda x: (x, zeros_like(x), zeros_like(x))), update, _first


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Triple:
    """Adam. b1, b2: decay of the first and second moments. Source: arXiv:1412.6980."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * square(g) + b2 * v
        mean = m / (1 - asarray(b1, m.dtype) ** (i + 1))
        squares = v / (1 - asarray(b2, m.dtype) ** (i + 1))
        return x - rate(i) * mean / (sqrt(squares) + eps), m, v

    return (lambda x: (x, zeros_like(x), zeros_like(x))), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Triple:
    """Adamax: Adam with a decaying maximum of gradients instead of the mean square."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = maximum(b2 * u, absolute(g))
        return x - rate(i) / (1 - asarray(b1, m.dtype) ** (i + 1)) * m / (u + eps), m, u

    return (lambda x: (x, zeros_like(x), zeros_like(x))), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Triple:
    """SM3, which stores a sum of squares per row of each dimension. Source: arXiv:1901.11150."""
    rate = make_schedule(step_size)

    def init(x: Any) -> Any:
        shape = asarray(x).shape or (1,)
        return x, zeros(shape, asarray(x).dtype), [zeros(n, asarray(x).dtype) for n in shape]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, rows = state
        n, g = m.ndim, reshape(g, m.shape)
        wide = [reshape(v, (1,) * d + (-1,) + (1,) * (n - d - 1)) for d, v in enumerate(rows)]
        squares = functools.reduce(minimum, wide) + square(g)
        m = (1 - momentum) * _by_root(g, squares) + momentum * m
        rows = [squares.max(tuple([a for a in range(n) if a != d])) for d in range(n)]
        return x - rate(i) * reshape(m, asarray(x).shape), m, rows

    return init, update, _first


# -- schedules of the step size --


def constant(step_size: Any) -> Schedule:
    """A constant step size."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """`step_size * decay_rate ** (i / decay_steps)`."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """`step_size / (1 + decay_rate * i / decay_steps)`; `staircase` rounds i / decay_steps down."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0
) -> Schedule:
    """From `step_size` to `final_step_size` in `decay_steps`, by (1 - i/decay_steps)^power."""

    def schedule(step_num: Any) -> Any:
        left = (1 - minimum(step_num, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """`values[n]` at steps past n of the sorted `boundaries`; values has one more element."""
    at, sizes = array(boundaries), array(values)
    if at.ndim != 1 or sizes.ndim != 1:
        raise ValueError(
            "shardwise.example_libraries.optimizers.piecewise_constant takes sequences; got "
            f"boundaries of shape {at.shape} and values of shape {sizes.shape}."
        )
    if len(at) != len(sizes) - 1:
        raise ValueError(
            "shardwise.example_libraries.optimizers.piecewise_constant takes one more value than "
            f"boundaries; got {len(sizes)} values and {len(at)} boundaries."
        )
    return lambda i: sizes[sum_of(i > at)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """Returns a schedule unchanged, and a number as a constant schedule."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(
        "a step size must be a number, or a function from the step to a number; got "
        f"{type(scalar_or_schedule).__name__}."
    )


# -- helpers --


def l2_norm(tree: Any) -> Array:
    """The Euclidean norm of all numbers in a pytree."""
    return sqrt(sum([vdot(x, x) for x in flatten(tree)[0]]))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients, scaled down if their norm is greater than `max_norm`."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks where the tree of parameters ends and a parameter's state, `subtree`, begins."""

    def __init__(self, subtree: Any):
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state as the tree of parameters with a `JoinPoint` for each, for serialization."""
    return unflatten(opt_state.tree_def, map(JoinPoint, _states(opt_state)))


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`."""
    points, tree = flatten(marked_pytree)
    if not all(isinstance(p, JoinPoint) for p in points):
        raise TypeError("pack_optimizer_state takes a pytree whose leaves are all JoinPoints.")
    return _packed(tree, [p.subtree for p in points])
