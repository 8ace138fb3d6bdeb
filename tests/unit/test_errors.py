"""Errors on their way to callers."""

from __future__ import annotations

import pytest
from google.rpc import error_details_pb2

from practicum.common.errors import MAX_DETAIL_BYTES, InvalidArgument, NotFound, cut, to_status

TRAILER_BYTES = 8_192


@pytest.mark.parametrize("text", ["x" * 30_000, "ü" * 30_000, "🙂" * 30_000, "a" + "🙂" * 30_000])
def test_a_trailer_is_never_too_long(text: str) -> None:
    """It holds the detail with three bytes for each byte that is not ASCII, and the Status in base64."""
    wrong = {f"tasks[{index}].{text[:300]}": text for index in range(50)}
    for error in (NotFound(text, reason="UNKNOWN", metadata={"id": text}), InvalidArgument(wrong)):
        status = to_status(error)
        assert 3 * len(status.message.encode()) + 4 * status.ByteSize() / 3 < TRAILER_BYTES
        assert status.message.endswith("…")


def test_what_is_short_is_told_whole() -> None:
    """Twenty fields, too."""
    wrong = {f"tasks[{index}].agent.kind": "must match [A-Za-z0-9._:-]{1,128}" for index in range(20)}
    bad = error_details_pb2.BadRequest()
    to_status(InvalidArgument(wrong)).details[1].Unpack(bad)
    assert {violation.field: violation.description for violation in bad.field_violations} == wrong
    assert to_status(NotFound("no such task", reason="X", metadata={"id": "t"})).message == "no such task"


@pytest.mark.parametrize("text", ["x" * MAX_DETAIL_BYTES, "ü" * (MAX_DETAIL_BYTES // 2), "", "short"])
def test_what_just_fits_is_not_cut(text: str) -> None:
    """Counted in bytes."""
    assert cut(text, MAX_DETAIL_BYTES) == text
    assert cut(text + "é" * MAX_DETAIL_BYTES, MAX_DETAIL_BYTES).endswith("…")
