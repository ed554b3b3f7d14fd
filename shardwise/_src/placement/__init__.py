"""Placement of arrays: `device_put`, explicit axes, layouts, arrays created from shards."""
