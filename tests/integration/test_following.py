"""Reading a run's events beside what else there is to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from support.services import Services, unused_address

from practicum.cli import following
from practicum.cli.following import Following
from practicum.cli.run_view import RunView
from practicum.client import CallFailed, TrainerClient
from practicum.v1 import trainer_pb2, trainer_pb2_grpc

# A traceback in the thread fails these tests: pytest warns of it, and warnings are errors.


class Endless(trainer_pb2_grpc.TrainerServiceServicer):
    """A trainer whose run never ends."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def WatchRun(
        self, request: trainer_pb2.WatchRunRequest, context: grpc.ServicerContext
    ) -> Iterator[trainer_pb2.WatchRunResponse]:
        """One event, and then nothing."""
        yield trainer_pb2.WatchRunResponse(events=[trainer_pb2.RunEvent(sequence=1, note="hello")])
        self.over.wait()


@contextmanager
def serving(trainer: Endless) -> Iterator[str]:
    """Its address."""
    address = unused_address()
    server: Any = grpc.server(ThreadPoolExecutor(2))
    trainer_pb2_grpc.add_TrainerServiceServicer_to_server(trainer, server)
    server.add_insecure_port(address)
    server.start()
    try:
        yield address
    finally:
        trainer.over.set()
        server.stop(0).wait()


class Told(RunView):
    """A view that says when something came."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def add(self, event: trainer_pb2.RunEvent) -> None:
        super().add(event)
        self.came.set()


def test_an_error_is_kept_for_who_follows(services: Services) -> None:
    """Here of a real trainer that knows no such run."""
    trainer = services.start("trainer", "--state", str(services.folder / "state"))
    with TrainerClient(trainer.address) as client:
        reading = Following(client, "unknown", RunView())
        reading.start()
        reading.join(20)
    assert isinstance(reading.error, CallFailed) and reading.error.reason == "RUN_UNKNOWN"


def test_closing_the_connection_ends_it_in_silence() -> None:
    """As Ctrl-C does."""
    view = Told()
    with serving(Endless()) as address:
        with TrainerClient(address) as client:
            reading = Following(client, "run", view)
            reading.start()
            assert view.came.wait(20)
        reading.join(20)
    assert not reading.is_alive()


def test_closing_the_connection_between_two_tries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the trainer was away at that moment."""
    monkeypatch.setattr(following, "RETRY_SECONDS", 0.0)
    with TrainerClient(unused_address()) as client:
        reading = Following(client, "run", RunView())
        reading.start()
        client.close()
    reading.join(20)
    assert not reading.is_alive()
