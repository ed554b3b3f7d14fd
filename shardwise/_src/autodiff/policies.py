"""Policies for `checkpoint(fun, policy=...)`: what to save between forward and backward pass.

A policy is called for each equation of the function, and decides whether its results are saved:

    policy(op, *types, **params) → bool, or ad_checkpoint.Offloadable

Arguments of the function are always available. Policies made with equal names are equal, so that
programs compiled for them are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.autodiff.recompute import Offloadable, named
from shardwise._src.base.caches import cached
from shardwise._src.base.lazy import public
from shardwise._src.core.op import Op

Policy = Callable[..., Any]


def everything_saveable(op: Op, *types: Any, **params: Any) -> bool:
    """Saves all residuals, as without `checkpoint`."""
    return True


def nothing_saveable(op: Op, *types: Any, **params: Any) -> bool:
    """Recomputes all residuals; the default."""
    return False


def dots_saveable(op: Op, *types: Any, **params: Any) -> bool:
    """Saves the results of matrix products and convolutions."""
    return op.contraction


def dots_with_no_batch_dims_saveable(op: Op, *types: Any, **params: Any) -> bool:
    """Saves products without batch dimensions: of activations with weights, not with each other."""
    if not op.contraction or op.dims is None:
        return False
    return not op.dims(op, *types, **params).batched()


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@cached(128)
def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Saves products without batch dimensions in another memory kind, such as 'pinned_host'."""

    def offload_dots(op: Op, *types: Any, **params: Any) -> Any:
        found = dots_with_no_batch_dims_saveable(op, *types, **params)
        return Offloadable(offload_src, offload_dst) if found else False

    return offload_dots


@cached(128)
def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Saves everything except values that `checkpoint_name` gave one of these names."""

    def save_except(op: Op, *types: Any, **params: Any) -> bool:
        return op is not named or params["name"] not in names_not_to_save

    return save_except


@cached(128)
def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Saves values with a name, unless it is one of these."""

    def save_other_names(op: Op, *types: Any, **params: Any) -> bool:
        return op is named and params["name"] not in names_not_to_save

    return save_other_names


@public("shardwise.checkpoint_policies")
@dataclass(frozen=True)
class SaveOnlyTheseNames:
    """The policy of `save_only_these_names`."""

    saveable_names: frozenset[str]

    def __call__(self, op: Op, *types: Any, **params: Any) -> bool:
        return op is named and params["name"] in self.saveable_names


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Saves values with one of these names."""
    return SaveOnlyTheseNames(frozenset(names_which_can_be_saved))


@cached(128)
def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Saves the values that either of two policies saves."""

    def save_either(op: Op, *types: Any, **params: Any) -> Any:
        return policy_1(op, *types, **params) or policy_2(op, *types, **params)

    return save_either


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Saves values with some names in place, and values with other names in another memory kind.

    Raises ValueError if a name is in both lists.
    """
    saved, offloaded = tuple(names_which_can_be_saved), tuple(names_which_can_be_offloaded)
    both = sorted({*saved} & {*offloaded})
    if both:
        raise ValueError(
            "save_and_offload_only_these_names: a value is saved or offloaded, not both; both "
            f"lists contain {', '.join(map(repr, both))}."
        )
    return _save_and_offload(saved, offloaded, Offloadable(offload_src, offload_dst))


@cached(128)
def _save_and_offload(
    saved: tuple[str, ...], offloaded: tuple[str, ...], where: Offloadable
) -> Policy:
    def save_or_offload(op: Op, *types: Any, **params: Any) -> Any:
        if op is not named:
            return False
        return where if params["name"] in offloaded else params["name"] in saved

    return save_or_offload
