"""How many processes run on each machine after some were lost."""

from shardwise._src.launch.rank_assignment import Share, Shares, share_of


def test_a_machine_without_processes_is_done_without_once_it_is_lost():
    shares = Shares(1, nodes=3, least=2)
    shares.lose([1])
    shares.lose_nodes([1])
    assert (shares.counts, shares.left_out) == ([1, 0, 1], {1})
    shares.lose_nodes([2])  # there would be too few left
    assert (shares.counts, shares.left_out) == ([1, 0, 1], {1})
    shares.take_back([])
    assert (shares.counts, shares.left_out) == ([1, 1, 1], set())


def test_without_a_least_number_all_machines_are_awaited():
    shares = Shares(2, nodes=2, least=None)
    shares.lose([1])
    shares.lose_nodes([1])
    assert (shares.counts, shares.left_out) == ([2, 2], set())


def test_ranks_of_machines_with_unequal_numbers():
    assert [share_of([2, 0, 3], node) for node in range(3)] == [
        Share(0, 2, 5), Share(2, 0, 5), Share(2, 3, 5)
    ]  # fmt: skip
    assert share_of([2, 0, 3], 2).ranks == range(2, 5)
