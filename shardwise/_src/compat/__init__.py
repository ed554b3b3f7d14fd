"""Legacy spellings of current APIs, and classes that exist only for these."""
