"""The implementation behind the public names.

docs/architecture.md lists the packages in layers; a package imports only packages of lower layers.
"""
