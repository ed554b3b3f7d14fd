"""The public API: transforms, stages, placement, callbacks and checks of their arguments."""
