"""The version, in one place; `pyproject.toml` reads it from here."""

__version__ = "0.2.0"
__version_info__ = tuple([int(part) for part in __version__.split(".")])
