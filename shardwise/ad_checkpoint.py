"""What reverse mode keeps and what it computes again: names, policies, and a look at the result.

    @partial(checkpoint, policy=checkpoint_policies.save_only_these_names("hidden"))
    def layer(w, x):
        hidden = checkpoint_name(x @ w, "hidden")
        return tanh(hidden)

    print_saved_residuals(layer, w, x)
"""

from shardwise import checkpoint_policies as checkpoint_policies
from shardwise.api.remat import checkpoint as checkpoint
from shardwise.api.remat import checkpoint_name as checkpoint_name
from shardwise.api.remat import print_saved_residuals as print_saved_residuals
from shardwise.api.remat import remat as remat
from shardwise.api.remat import saved_residuals as saved_residuals
from shardwise.control.remat import Offloadable as Offloadable
from shardwise.control.remat import Recompute as Recompute
from shardwise.control.remat import Saveable as Saveable
