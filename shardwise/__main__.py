"""`python -m shardwise`: the command line."""

import sys

from shardwise._src.cli import main

if __name__ == "__main__":
    sys.exit(main())
