"""What can go wrong at this door, by reason."""

from __future__ import annotations

from practicum.common.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, Unavailable


def session_unknown(session_id: str) -> NotFound:
    """It was never opened, it expired, or it is closed."""
    return NotFound(f"no open session {session_id!r}: open it first", reason="SESSION_UNKNOWN")


def stale_attempt(session_id: str, *, attempt: int, newest: int) -> FailedPrecondition:
    """The caller was cut off, and another attempt took over."""
    return FailedPrecondition(
        f"attempt {attempt} of session {session_id!r} was followed by attempt {newest}",
        reason="STALE_ATTEMPT",
        metadata={"newest_attempt": str(newest)},
    )


def model_unknown(model: str, served: str) -> NotFound:
    """Another model is served."""
    return NotFound(f"no model {model!r}; {served!r} is served", reason="MODEL_UNKNOWN")


def prompt_too_long(tokens: int, most: int) -> InvalidArgument:
    """Nothing would be left to sample."""
    wrong = f"has {tokens} tokens; the model holds {most}, one of them sampled"
    return InvalidArgument({"prompt": wrong}, reason="PROMPT_TOO_LONG")


def out_of_vocabulary(token: int, size: int) -> InvalidArgument:
    """The engine would refuse it or worse."""
    wrong = f"holds token {token}; ids are 0 to {size - 1}"
    return InvalidArgument({"prompt_token_ids": wrong}, reason="TOKEN_OUT_OF_VOCABULARY")


def engine_unavailable(address: str, why: str) -> Unavailable:
    """Nothing can be sampled now. Sessions are intact."""
    return Unavailable(
        f"the engine at {address} does not serve: {why}",
        reason="ENGINE_UNAVAILABLE",
        metadata={"engine": address},
        retry_after_seconds=1.0,
    )


def too_many(limit: int) -> ResourceExhausted:
    """The engine has as much as it may have."""
    return ResourceExhausted(f"{limit} requests are in flight", reason="TOO_MANY_REQUESTS", retry_after_seconds=0.5)


def checkpoint_refused(path: str, why: str) -> InvalidArgument:
    """The old weights go on serving."""
    error = InvalidArgument({"path": f"{path}: {why}"}, reason="CHECKPOINT_REFUSED")
    error.metadata = {"difference": why}
    return error


def path_outside_root(path: str) -> InvalidArgument:
    """Weights are read only from below the weights root."""
    return InvalidArgument({"path": f"{path} is not below the weights root"}, reason="PATH_OUTSIDE_ROOT")


def version_not_newer(version: int, served: int) -> FailedPrecondition:
    """Versions only rise."""
    return FailedPrecondition(
        f"version {version} is not newer than {served}, which is served",
        reason="VERSION_NOT_NEWER",
        metadata={"served_version": str(served)},
    )
