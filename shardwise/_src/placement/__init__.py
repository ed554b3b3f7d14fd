"""Where arrays are: `device_put`, explicit axes, layouts, arrays created from shards."""
