"""Building blocks for extensions of the library: user-defined primitives and programs as data."""
