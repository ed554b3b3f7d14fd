"""`python -m shardwise.compat script.py args…`: runs a program written for JAX."""

from shardwise._src.compat.run import main

if __name__ == "__main__":
    main()
