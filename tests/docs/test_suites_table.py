"""The table of the libraries' own tests keeps the rows of suites that did not run."""

from tools.ecosystem_suites import Found, Suite, table


def test_rows():
    chex, optax = Suite("chex", ()), Suite("optax", ())
    first = table([Found(optax, 4, 200, 198, {})], "")
    both = table([Found(chex, 1, 50, 50, {})], f"\n{first}\n")
    assert both.splitlines()[2].startswith("| chex ") and both.endswith("| 200 | 198 | 99.0 % |")
    again = table([Found(optax, 2, 400, 400, {})], both)
    assert "| 50 | 50 | 100.0 % |" in again and "198" not in again
