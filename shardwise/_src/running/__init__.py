"""Running programs: executables, their placement, and the eager interpreter."""
