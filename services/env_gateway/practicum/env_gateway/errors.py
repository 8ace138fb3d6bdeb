"""The gateway's refusals, with the reasons that the protocol names."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from practicum.common.errors import FailedPrecondition, InvalidArgument, NotFound, PracticumError


class ToolTimeout(PracticumError):
    """A call took longer than it may; it may have happened."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED

    def __init__(self, detail: str) -> None:
        super().__init__(detail, reason="TOOL_TIMEOUT", metadata={"dispatched": "true"})


class Cancelled(PracticumError):
    """Everybody who waited for a call left; it may have happened."""

    code = grpc.StatusCode.CANCELLED

    def __init__(self) -> None:
        super().__init__("the call was cancelled", reason="TOOL_CANCELLED", metadata={"dispatched": "true"})


def session_unknown(session_id: str) -> NotFound:
    """No such session was opened here, or it is long gone."""
    return NotFound(
        f"no session {session_id}; open it first", reason="SESSION_UNKNOWN", metadata={"session_id": session_id}
    )


def environment_unknown(name: str, known: Iterable[str]) -> NotFound:
    """The catalogue has no such environment."""
    listed = ", ".join(sorted(known))
    return NotFound(
        f"no environment {name!r}; there are: {listed}", reason="ENVIRONMENT_UNKNOWN", metadata={"known": listed}
    )


def tool_unknown(name: str, known: Iterable[str]) -> NotFound:
    """The agent may call no such tool."""
    listed = ", ".join(sorted(known))
    return NotFound(
        f"no tool {name!r}; there are: {listed or 'none'}", reason="TOOL_UNKNOWN", metadata={"known": listed}
    )


def stale_attempt(attempt: int, newest: int) -> FailedPrecondition:
    """A later attempt owns the session."""
    return FailedPrecondition(
        f"attempt {attempt} is over: attempt {newest} owns the session",
        reason="STALE_ATTEMPT",
        metadata={"attempt": str(newest)},
    )


def attempt_unknown(attempt: int, newest: int) -> FailedPrecondition:
    """An attempt that was never opened."""
    return FailedPrecondition(
        f"attempt {attempt} is not open: the newest is {newest}; open the session under it first",
        reason="SESSION_NOT_READY",
        metadata={"attempt": str(newest)},
    )


def scorer_unknown(name: str, known: Iterable[str]) -> InvalidArgument:
    """No such scorer."""
    listed = ", ".join(known)
    error = InvalidArgument({"scoring.scorer": f"{name!r} is unknown; give one of {listed}"}, reason="SCORER_UNKNOWN")
    error.metadata["known"] = listed
    return error
