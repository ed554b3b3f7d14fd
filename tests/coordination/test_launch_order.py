"""Contradictory launch orders."""

from shardwise._src.coordination.launch_order import contradiction


def launches(*nodes):
    return {turn: (key, number, name) for turn, (key, number, name) in enumerate(nodes, 1)}


A, B, C, D = ("0,1", 7, "a"), ("1,2", 3, "b"), ("0,2", 1, "c"), ("0,1", 8, "d")


def test_orders_that_agree():
    orders = {0: launches(A, D, C), 1: launches(B, A, D), 2: launches(B, C)}
    assert contradiction(orders, {}) == []
    assert contradiction({0: launches(A), 1: launches(B)}, {1: [A, D]}) == []
    assert contradiction({}, {0: [A]}) == []


def test_two_orders_that_do_not():
    many = [("0,1", n, "z") for n in range(9, 3000)]
    found = contradiction({0: launches(A, *many, C), 1: launches(A, *many), 2: launches(C)}, {})
    assert found == []
    found = contradiction({0: launches(A, D, B), 1: launches(B, A, D)}, {})
    b = "'b' (launch 3 of processes 1,2)"
    either = ("'a' (launch 7 of processes 0,1)", "'d' (launch 8 of processes 0,1)")
    assert sorted(found) in [[(0, x, b), (1, b, y)] for x in either for y in either]


def test_three_orders_in_a_ring():
    found = contradiction({0: launches(A, C), 1: launches(B, A), 2: launches(C, B)}, {})
    assert found == contradiction(
        {0: launches(A), 1: launches(B), 2: launches(C)}, {0: [C, D], 1: [A, D], 2: [B]}
    )
    assert {(rank, first[1], second[1]) for rank, first, second in found} == {
        (0, "a", "c"),
        (1, "b", "a"),
        (2, "c", "b"),
    }
