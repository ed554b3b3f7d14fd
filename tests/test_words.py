"""The list of phrases that comments, docstrings and documentation must not use (`make lint`)."""

from tools.check_words import complaints

PYTHON = '''"""Functions that are made anew."""

MENDS = "is no array"  # somebody knows


def f():
    """Says `that there is no` axis,
    and lets go of it."""
    return "anew"
'''
MARKDOWN = """A tree, so that there is no end; `anew` is code.

```python
x = "anew"
```

    anew

It is no array.
"""


def test_prose_of_python_is_searched_and_code_is_not(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(PYTHON)
    assert sorted(complaints(path, "a.py")) == [
        "a.py:1: 'anew': say again",
        "a.py:3: 'somebody': say name who: a process, a thread, the user",
        "a.py:7: 'that there is no': say missing, absent",
        "a.py:8: 'lets go of': say releases",
    ]


def test_text_of_markdown_is_searched_and_code_is_not(tmp_path):
    path = tmp_path / "a.md"
    path.write_text(MARKDOWN)
    assert complaints(path, "a.md") == [
        "a.md:9: 'is no array': say is not an array, a pytree, a string, …"
    ]
