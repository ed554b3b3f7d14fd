"""Which processes may end, by the number of requests."""

from shardwise._src.coordination.shutdown_barrier import ShutdownBarrier


def test_one_ends_when_all_others_have_settled():
    leaves = ShutdownBarrier()
    leaves.begin(0, {"0,1,2": 5})
    asked = dict(leaves.questions([1, 2]))
    assert asked == {r: {"op": "leaving", "number": 1, "sets": {"0,1,2": 5}} for r in (1, 2)}
    assert not leaves.dismissed([1, 2])
    leaves.answer(1, 1)
    assert not leaves.dismissed([1, 2])
    leaves.answer(2, 1)
    assert leaves.dismissed([1, 2]) == [0]
    assert not leaves.waiting


def test_who_waits_for_long_is_named_once():
    leaves = ShutdownBarrier()
    leaves.begin(0, {"0,1,2": 5}, 100.0)
    leaves.begin(3, {"2,3": 5}, 108.0)
    list(leaves.questions([1, 2]))
    leaves.answer(1, 1)
    assert not list(leaves.late([1, 2], 110.0, 10.0))
    assert list(leaves.late([1, 2], 111.0, 10.0)) == [(0, 11.0, [2])]
    assert not list(leaves.late([1, 2], 112.0, 10.0))
    assert list(leaves.late([1, 2], 119.0, 10.0)) == [(3, 11.0, [1, 2])]


def test_who_is_gone_is_not_waited_for():
    leaves = ShutdownBarrier()
    leaves.begin(0, {"0,1,2": 5})
    list(leaves.questions([1, 2]))
    leaves.answer(1, 1)
    assert leaves.dismissed([1]) == [0]
    leaves.begin(1, {"0,1,2": 6})
    assert leaves.dismissed([]) == [1]


def test_many_that_end_at_once_are_asked_about_together():
    leaves, count, questions, asked = ShutdownBarrier(), 1024, 0, set()
    for rank in range(count):
        leaves.begin(rank, {"all": 9})
        new = list(leaves.questions(range(rank + 1, count)))
        questions += len(new)
        asked |= {r for r, _ in new}
        for answering in [r for r in asked if rank < r <= rank + 3]:
            leaves.answer(answering, rank)
        leaves.dismissed(range(rank + 1, count))
    assert not leaves.waiting
    assert questions < 4 * count


def test_a_question_says_the_most_that_any_has_launched():
    leaves = ShutdownBarrier()
    leaves.begin(0, {"0,1,2": 5, "0,1": 3})
    leaves.begin(1, {"0,1,2": 4, "1,2": 7})
    ((_, question),) = leaves.questions([2])
    assert question["sets"] == {"0,1,2": 5, "0,1": 3, "1,2": 7}
    assert not list(leaves.questions([2]))
    leaves.begin(3, {})
    assert not list(leaves.questions([2]))
    leaves.answer(2, 2)
    assert leaves.dismissed([2]) == [0, 1]
    assert [number for _, number in [(r, q["number"]) for r, q in leaves.questions([2])]] == [3]
