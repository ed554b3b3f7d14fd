"""Policies for `checkpoint(fun, policy=...)`: which residuals the forward pass saves.

A policy is called for each equation of the function and decides whether its results are saved:

    policy(op, *types, **params) → bool, or ad_checkpoint.Offloadable

The function's arguments are always available. Policies made with equal names are the same object,
so that programs compiled for them are cache hits.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.autodiff.policies import Policy as Policy
    from shardwise._src.autodiff.policies import SaveOnlyTheseNames as SaveOnlyTheseNames
    from shardwise._src.autodiff.policies import checkpoint_dots as checkpoint_dots
    from shardwise._src.autodiff.policies import (
        checkpoint_dots_with_no_batch_dims as checkpoint_dots_with_no_batch_dims,
    )
    from shardwise._src.autodiff.policies import dots_saveable as dots_saveable
    from shardwise._src.autodiff.policies import (
        dots_with_no_batch_dims_saveable as dots_with_no_batch_dims_saveable,
    )
    from shardwise._src.autodiff.policies import everything_saveable as everything_saveable
    from shardwise._src.autodiff.policies import nothing_saveable as nothing_saveable
    from shardwise._src.autodiff.policies import (
        offload_dot_with_no_batch_dims as offload_dot_with_no_batch_dims,
    )
    from shardwise._src.autodiff.policies import (
        save_and_offload_only_these_names as save_and_offload_only_these_names,
    )
    from shardwise._src.autodiff.policies import (
        save_any_names_but_these as save_any_names_but_these,
    )
    from shardwise._src.autodiff.policies import (
        save_anything_except_these_names as save_anything_except_these_names,
    )
    from shardwise._src.autodiff.policies import save_from_both_policies as save_from_both_policies
    from shardwise._src.autodiff.policies import save_only_these_names as save_only_these_names

lazy_names(__name__)
