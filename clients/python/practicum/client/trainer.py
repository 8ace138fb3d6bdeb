"""The trainer's client."""

from __future__ import annotations

from collections.abc import Iterator

from practicum.client.channel import Client, connect
from practicum.client.errors import told
from practicum.v1 import trainer_pb2, trainer_pb2_grpc

CALL_SECONDS = 60.0


class TrainerClient(Client):
    """Calls one trainer. Every method raises CallFailed; close it, or use it as a context manager."""

    def __init__(self, address: str = "127.0.0.1:50054") -> None:
        self.address = address
        self._channel = connect(address)
        self._stub = trainer_pb2_grpc.TrainerServiceStub(self._channel)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def start(self, spec: trainer_pb2.RunSpec) -> trainer_pb2.Run:
        """Starts a run, or goes on with it."""
        with told(self.address):
            return self._stub.StartRun(trainer_pb2.StartRunRequest(spec=spec), timeout=CALL_SECONDS).run

    def run(self, run_id: str) -> trainer_pb2.Run:
        """How a run stands."""
        with told(self.address):
            return self._stub.GetRun(trainer_pb2.GetRunRequest(run_id=run_id), timeout=CALL_SECONDS).run

    def runs(self) -> list[trainer_pb2.Run]:
        """All runs, newest first."""
        with told(self.address):
            return list(self._stub.ListRuns(trainer_pb2.ListRunsRequest(), timeout=CALL_SECONDS).runs)

    def watch(self, run_id: str, *, from_sequence: int = 1) -> Iterator[trainer_pb2.RunEvent]:
        """A run's events, and what happens until it ends."""
        request = trainer_pb2.WatchRunRequest(run_id=run_id, from_sequence=from_sequence)
        with told(self.address):
            for response in self._stub.WatchRun(request):
                yield from response.events

    def stop(self, run_id: str) -> trainer_pb2.Run:
        """Stops a run; it checkpoints first."""
        with told(self.address):
            return self._stub.StopRun(trainer_pb2.StopRunRequest(run_id=run_id), timeout=CALL_SECONDS).run
