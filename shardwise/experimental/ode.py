"""Ordinary differential equations: solvers, and the steps of the method."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.api_util import ravel_first_arg as ravel_first_arg
    from shardwise._src.extend.api_util import ravel_first_arg_ as ravel_first_arg_
    from shardwise._src.extend.api_util import safe_map as map
    from shardwise._src.extend.api_util import safe_zip as zip
    from shardwise._src.scipy.ode import abs2 as abs2
    from shardwise._src.scipy.ode import fit_4th_order_polynomial as fit_4th_order_polynomial
    from shardwise._src.scipy.ode import initial_step_size as initial_step_size
    from shardwise._src.scipy.ode import interp_fit_dopri as interp_fit_dopri
    from shardwise._src.scipy.ode import mean_error_ratio as mean_error_ratio
    from shardwise._src.scipy.ode import odeint as odeint
    from shardwise._src.scipy.ode import optimal_step_size as optimal_step_size
    from shardwise._src.scipy.ode import runge_kutta_step as runge_kutta_step

lazy_names(__name__)
