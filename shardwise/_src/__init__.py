"""What lies behind the public names.

The rooms are listed in docs/architecture.md, from the ground up; imports only go down that list.
"""
