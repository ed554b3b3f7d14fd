"""What programs that extend the library are made of: primitives of users, programs as data."""
