"""Errors that a person reads: one sentence, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from practicum.cli import interrupts
from practicum.cli.child import StartFailed
from practicum.cli.suite import PortTaken
from practicum.client import CallFailed


class Refused(Exception):
    """Something that was asked for can't be done; says what to do instead."""


@contextmanager
def explained() -> Iterator[None]:
    """Ends the command with status 1 and the reason; Ctrl-C and SIGTERM with 130."""
    interrupts.listen()
    try:
        yield
    except BrokenPipeError:
        # Who read the output has enough. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (CallFailed, PortTaken, Refused, StartFailed, ValueError, OSError) as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.secho("stopped", err=True)
        raise typer.Exit(130) from None
