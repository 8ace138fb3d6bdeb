"""How a run's own process ends, other than by finishing: its exit codes and what raises them."""

from __future__ import annotations

EXIT_STOPPED = 3
# The last event says why. Any other code is an accident, and the log says more.
EXIT_FAILED = 4


class RunFailed(Exception):
    """The run can't go on; the text is the sentence that a person is told."""


class RunStopped(Exception):
    """Somebody asked the run to stop; what was reached is kept."""
