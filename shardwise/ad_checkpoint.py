"""Which residuals reverse mode saves and which it recomputes: names, policies, and inspection.

For example:

    @partial(checkpoint, policy=checkpoint_policies.save_only_these_names("hidden"))
    def layer(w, x):
        hidden = checkpoint_name(x @ w, "hidden")
        return tanh(hidden)

    print_saved_residuals(layer, w, x)
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise import checkpoint_policies as checkpoint_policies
    from shardwise._src.autodiff.recompute import Offloadable as Offloadable
    from shardwise._src.autodiff.recompute import Recompute as Recompute
    from shardwise._src.autodiff.recompute import Saveable as Saveable
    from shardwise._src.autodiff.remat import checkpoint as checkpoint
    from shardwise._src.autodiff.remat import checkpoint_name as checkpoint_name
    from shardwise._src.autodiff.remat import print_saved_residuals as print_saved_residuals
    from shardwise._src.autodiff.remat import remat as remat
    from shardwise._src.autodiff.remat import saved_residuals as saved_residuals

lazy_names(__name__)
