"""Layouts of arrays in memory; see `types.layout`."""

from shardwise.types.layout import Format as Format
from shardwise.types.layout import Layout as Layout
