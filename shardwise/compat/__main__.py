"""`python -m shardwise.compat script.py args…`: a program that is written for JAX."""

from shardwise._src.compat.run import main

if __name__ == "__main__":
    main()
