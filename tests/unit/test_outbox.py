"""What a node says, and says again after a broken stream."""

from __future__ import annotations

from practicum.node.outbox import MAX_FRAME_BYTES, Outbox, Upload
from practicum.v1 import dispatch_pb2, message_pb2


def message(text: str) -> message_pb2.Message:
    return message_pb2.Message(id=text[:8], session_id="t/0", text=text)


def finished(lease_id: str) -> dispatch_pb2.Finished:
    return dispatch_pb2.Finished(lease_id=lease_id, rollout_id="t/0", trajectory=b"body")


def test_messages_go_before_the_result_that_ends_their_session() -> None:
    """Also when they need several frames."""
    outbox = Outbox()
    outbox.hold("lease")
    for index in range(5):
        outbox.say("lease", message(str(index) * (MAX_FRAME_BYTES // 2)))
    outbox.finish(finished("lease"))
    frames = [outbox.take() for _ in range(4)]
    assert [len(frame.messages) for frame in frames] == [2, 2, 1, 0]
    assert [len(frame.finished) for frame in frames] == [0, 0, 1, 0]
    assert all(frame.ByteSize() <= 1.1 * MAX_FRAME_BYTES for frame in frames)


def test_what_was_not_acked_is_said_again() -> None:
    """And what was acked is not."""
    outbox = Outbox()
    for lease_id in ("acked", "open"):
        outbox.hold(lease_id)
        outbox.say(lease_id, message(lease_id))
        outbox.finish(finished(lease_id))
    outbox.take()
    outbox.forget("acked")
    outbox.say_again()
    frame = outbox.take()
    assert [m.text for m in frame.messages] == ["open"]
    assert [f.lease_id for f in frame.finished] == ["open"]
    assert outbox.held() == ["open"]


def test_nothing_is_said_for_a_lease_that_is_lost() -> None:
    """Neither messages nor results."""
    outbox = Outbox()
    outbox.hold("lease")
    outbox.forget("lease")
    outbox.say("lease", message("late"))
    outbox.finish(finished("lease"))
    assert outbox.take() == dispatch_pb2.ConnectRequest()


def test_a_large_result_is_kept_until_it_is_acked() -> None:
    """An executor that is killed has lost what was uploaded."""
    outbox = Outbox()
    outbox.hold("lease")
    assert outbox.owes("lease")
    outbox.keep(Upload("lease", "sha256:00", b"body"))
    outbox.finish(finished("lease"))
    assert not outbox.owes("lease")
    assert [upload.body for upload in outbox.uploads] == [b"body"]
    outbox.forget("lease")
    assert outbox.uploads == []


def test_after_a_broken_stream_a_large_result_follows_its_upload() -> None:
    """Whether it was there before or came meanwhile; what has no upload waits for none."""
    outbox = Outbox()
    for lease_id in ("before", "meanwhile", "small"):
        outbox.hold(lease_id)
    for lease_id in ("before", "meanwhile"):
        outbox.keep(Upload(lease_id, "sha256:00", b"body"))
    for lease_id in ("before", "small"):
        outbox.finish(finished(lease_id))
    outbox.take()
    outbox.say_again()
    outbox.finish(finished("meanwhile"))
    assert [result.lease_id for result in outbox.take().finished] == ["small"]
    for lease_id in ("before", "meanwhile"):
        outbox.uploaded(lease_id)
        assert [result.lease_id for result in outbox.take().finished] == [lease_id]
