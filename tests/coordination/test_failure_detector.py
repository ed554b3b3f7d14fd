"""The conclusions of a coordinator, without connections: each meeting is reported separately."""

from shardwise._src.coordination.failure_detector import (
    MISSED,
    Arrived,
    FailureDetector,
    Meeting,
    Peer,
)


class Listener(FailureDetector):
    """A failure detector that records its messages."""

    def __init__(self):
        super().__init__({"heartbeat": 1e9, "patience": 1e9, "deadline": 10.0})
        self.said = []
        for rank in range(2):
            peer = self.peers[rank] = Peer(None)
            peer.rank, peer.about = rank, {"host": "h", "pid": 10 + rank}

    def send(self, peer, message):
        self.said.append((peer.rank, message["op"], message.get("text", message.get("why"))))


def meeting_of_0(detector, number):
    meeting = detector.meetings["0,1", number] = Meeting()
    meeting.arrived[0] = Arrived(f"barrier {number}")
    return meeting.begin


def test_each_meeting_that_takes_too_long_is_failed():
    detector = Listener()
    for number in range(20):  # a later meeting may reuse the memory of one that is over
        detector.check_peers(meeting_of_0(detector, number) + 11)
        del detector.meetings["0,1", number]
    failed = [text for rank, op, text in detector.said if (rank, op) == (0, "fail")]
    assert failed == [
        f"process 1 (host h, pid 11) did not reach barrier {n} within 11 s (`wait_timeout_secs`)."
        for n in range(20)
    ]


def test_each_meeting_without_one_who_has_ended_is_failed():
    detector = Listener()
    detector.peers[1].gone = "finished"
    for number in range(20):
        detector.check_peers(meeting_of_0(detector, number))
        del detector.meetings["0,1", number]
    assert detector.said == [
        (
            0,
            "fail",
            f"process 1 (host h, pid 11) has ended, and never reached barrier {n}. All "
            "processes must do this: look for an `if` on process_index() around it, for an "
            "early exit, or for data of different length.",
        )
        for n in range(20)
    ]


def test_a_full_stop_is_said_once():
    detector = Listener()
    detector._lost(detector.peers[1], "it failed with ValueError: give fewer.")
    detector._lost(detector.peers[0], "its connection closed")
    assert detector.said == [
        (0, "fail", "process 1 (host h, pid 11) is lost: it failed with ValueError: give fewer.")
    ]


def test_who_comes_later_to_what_one_who_has_ended_never_comes_to_is_told_so():
    detector = Listener()
    peer = detector.peers[2] = Peer(None)
    peer.rank, peer.about = 2, {"host": "h", "pid": 12}
    detector.peers[1].gone = "finished"
    meeting = detector.meetings["0,1,2", 0] = Meeting()
    for rank in (0, 2):
        meeting.arrived[rank] = Arrived("barrier")
        detector.check_peers(meeting.begin)
        detector.check_peers(meeting.begin)
    text = "process 1 (host h, pid 11) has ended, and never reached barrier." + MISSED
    assert detector.said == [(0, "fail", text), (2, "fail", text)]


def test_a_process_that_gives_no_sign_of_life_is_lost():
    detector = Listener()
    detector.asked["heartbeat"] = 5.0
    now = detector.peers[1].seen + 6
    detector.peers[0].seen = now
    detector.check_peers(now)
    assert detector.said == [
        (0, "fail", "process 1 (host h, pid 11) is lost: there was no heartbeat from it for 6 s: "
                    "it is stopped, or its machine or network is down."),
        (1, "dropped", "which sent no heartbeat"),
    ]  # fmt: skip


def test_what_waits_longer_than_the_patience_is_reported_and_not_failed():
    detector = Listener()
    detector.asked["patience"], detector.asked["deadline"] = 5.0, 1e9
    detector.check_peers(meeting_of_0(detector, 0) + 6)
    assert detector.said == [
        (0, "stacks", None),
        (1, "stacks", None),
        (0, "report", "barrier 0 has waited for 6 s; missing: process 1 (host h, pid 11) is at ?."
                      "\nprocess 0 (host h, pid 10):\n  it does not answer\n"
                      "\nprocess 1 (host h, pid 11):\n  it does not answer\n"),
    ]  # fmt: skip


def test_a_wait_with_a_timeout_is_reported_late_and_not_failed():
    """Checkpoints: whoever waits ends that without the coordinator, and files take long."""
    detector = Listener()
    detector.asked["patience"] = 5.0
    begin = meeting_of_0(detector, 0)
    detector.meetings["0,1", 0].patient = True
    for waited in (6, 49):
        detector.check_peers(begin + waited)
    assert detector.said == []
    for waited in (51, 1e6):
        detector.check_peers(begin + waited)
    asked = [(rank, op) for rank, op, _ in detector.said]
    assert asked == [(0, "stacks"), (1, "stacks"), (0, "report")]
    assert detector.said[-1][2].startswith(
        "barrier 0 has waited for 51 s; missing: process 1 (host h, pid 11) is at ?."
    )
