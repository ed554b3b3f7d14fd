"""docs/options.md agrees with the options, and names every variable that the library reads."""

from tools import options_page as tool


def test_the_page_is_current():
    same = tool.page() == tool.PAGE.read_text()
    assert same, "docs/options.md is not current: run `python tools/options_page.py`"


def test_variables_that_are_read_are_on_the_page():
    assert tool.read_in_source() == set(tool.VARIABLES)


def test_each_option_says_what_it_does():
    for name, flag in tool.made.FLAGS.items():
        assert flag.__doc__ and flag.__doc__.endswith("."), name
        assert f"| `{name}` |" in tool.PAGE.read_text()
