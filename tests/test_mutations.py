"""The list of mutations is up to date: each text occurs once in its file, and the tests exist."""

from tools.mutations import mutations, problem

MUTATIONS = mutations()


def test_names_differ():
    assert len({m["name"] for m in MUTATIONS}) == len(MUTATIONS) == 114


def test_entries_are_applicable():
    problems = {m["name"]: problem(m) for m in MUTATIONS}
    assert {name: p for name, p in problems.items() if p} == {}
    assert [m["name"] for m in MUTATIONS if m["old"] == m["new"]] == []
