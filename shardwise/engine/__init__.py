"""From programs to running code: lowering, compiling, arrays, dispatch and transfers."""
