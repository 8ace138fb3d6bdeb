"""What whoever reads a stream is told when the executor stops."""

from __future__ import annotations

from practicum.common.errors import Unavailable


def stopping() -> Unavailable:
    """Tells a client to come back."""
    return Unavailable("the executor stops", reason="DRAINING", retry_after_seconds=1.0)
