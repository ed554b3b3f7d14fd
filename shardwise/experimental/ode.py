"""Ordinary differential equations."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.ode import odeint as odeint

lazy_names(__name__)
