"""Taylor mode."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.autodiff.jet_interpreter import ZeroSeries as ZeroSeries
    from shardwise._src.autodiff.jet_interpreter import ZeroTerm as ZeroTerm
    from shardwise._src.autodiff.jet_interpreter import jet_rules as jet_rules
    from shardwise._src.autodiff.jet_interpreter import zero_series as zero_series
    from shardwise._src.autodiff.jet_interpreter import zero_term as zero_term
    from shardwise._src.autodiff.taylor_mode import jet as jet
    from shardwise._src.extend.jet_rules import def_comp as def_comp
    from shardwise._src.extend.jet_rules import def_deriv as def_deriv
    from shardwise._src.extend.jet_rules import deflinear as deflinear
    from shardwise._src.extend.jet_rules import defzero as defzero
    from shardwise._src.extend.jet_rules import deriv_prop as deriv_prop
    from shardwise._src.extend.jet_rules import fact as fact
    from shardwise._src.extend.jet_rules import jet2 as jet2
    from shardwise._src.extend.jet_rules import linear_prop as linear_prop
    from shardwise._src.extend.jet_rules import zero_prop as zero_prop

lazy_names(__name__)
