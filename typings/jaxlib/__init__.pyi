# The part of jaxlib that shardwise uses, with the types that jaxlib 0.10.2 to 0.12 have in common,
# as observed; jaxlib itself has no stubs for most of it. tests/runtime/test_seam.py compares these
# files with the names that the library uses and with the installed release.
#
# A name that only some releases have is followed by their range, as in `# >=0.11`. Optional
# parameters that the library does not pass are omitted.
__path__: list[str]
