"""What the tests of several files use."""
