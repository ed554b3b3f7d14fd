"""Programs run: executables, where they run, and the eager interpreter."""
