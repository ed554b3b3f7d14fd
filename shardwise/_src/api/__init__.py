"""What users call: transforms, stages, placement, callbacks and checks of their arguments."""
