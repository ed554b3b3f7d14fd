"""The bounds on the size of the project's parts."""

import tomllib

from tools import size

BOUNDS = tomllib.loads((size.ROOT / "tools" / "size_bounds.toml").read_text())


def test_a_part_over_its_bound_is_reported():
    assert size.over_bounds({"library": 10, "tests": 5}, {"library": 11, "tests": 5}) == [
        "library has 11 lines of code; the bound in tools/size_bounds.toml is 10. Remove code, or "
        "raise the bound with the reason beside it."
    ]


def test_only_code_counts():
    sizes = size.count('"""Doc."""\n\n# comment\nx = (\n    1,  # one\n)\n')
    assert (sizes["code"], sizes["prose"], sizes["blank"], sizes["total"]) == (3, 2, 1, 6)


def test_the_parts_exist():
    assert {*BOUNDS} == {"library", *size.BESIDE} - {"docs"}
