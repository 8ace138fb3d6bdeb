"""A node that does what a test says: the protocol of DispatchService, without an agent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc, message_pb2, trajectory_pb2


class ScriptedNode:
    """Dials in when it is made; `assignments` come one by one."""

    def __init__(
        self,
        address: str,
        node_id: str = "n",
        *,
        slots: int = 4,
        incarnation: str = "1",
        held: tuple[str, ...] = (),
        agents: tuple[str, ...] = ("tool_agent",),
    ) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = dispatch_pb2_grpc.DispatchServiceStub(self.channel)
        self._given: list[dispatch_pb2.Assignment] = []
        self._frames: queue.SimpleQueue[dispatch_pb2.ConnectRequest | None] = queue.SimpleQueue()
        register = dispatch_pb2.Register(
            node_id=node_id, incarnation=incarnation, slots=slots, agent_kinds=agents, held_leases=held
        )
        self.send(register=register)
        self._call = self.stub.Connect(iter(self._frames.get, None), timeout=60)
        self.terms = next(self._call).registered

    def send(self, **fields: object) -> None:
        """A frame."""
        self._frames.put(dispatch_pb2.ConnectRequest(**fields))  # type: ignore[arg-type]

    def next_frame(self) -> dispatch_pb2.ConnectResponse:
        """What the executor says next."""
        return next(self._call)

    def assignments(self, count: int) -> list[dispatch_pb2.Assignment]:
        """The next so many."""
        while len(self._given) < count:
            self._given += self.next_frame().assignments
        first, self._given = self._given[:count], self._given[count:]
        return first

    def finish(self, assignment: dispatch_pb2.Assignment, answer: str = "", **fields: object) -> None:
        """Brings a trajectory back."""
        fields = {"outcome": trajectory_pb2.OUTCOME_FINISHED, "final_answer": answer} | fields
        self.bring(assignment, trajectory=trajectory_of(assignment, **fields))

    def bring(self, assignment: dispatch_pb2.Assignment, **result: object) -> None:
        """Brings a result back."""
        finished = dispatch_pb2.Finished(
            lease_id=assignment.lease_id,
            rollout_id=assignment.rollout_id,
            **result,  # type: ignore[arg-type]
        )
        self.send(finished=[finished])

    def say(self, assignment: dispatch_pb2.Assignment, *ids: str) -> None:
        """Messages for the journal."""
        self.send(messages=[message_pb2.Message(id=i, session_id=assignment.rollout_id, topic="step") for i in ids])

    @contextmanager
    def beating(self, *leases: str) -> Iterator[None]:
        """Says every fifth of a second that it lives, and works on these."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.2):
                self.send(heartbeat=dispatch_pb2.Heartbeat(lease_ids=leases))

        beats = threading.Thread(target=run, daemon=True)
        beats.start()
        try:
            yield
        finally:
            stop.set()
            beats.join()

    def half_close(self) -> None:
        """Says nothing more, which ends the stream."""
        self._frames.put(None)

    def close(self) -> None:
        """Breaks the connection."""
        self._call.cancel()
        self._frames.put(None)
        self.channel.close()


def trajectory_of(assignment: dispatch_pb2.Assignment, **fields: object) -> bytes:
    """A trajectory of an assignment, as it travels."""
    trajectory = trajectory_pb2.Trajectory(
        rollout_id=assignment.rollout_id,
        task_id=assignment.task.id,
        group_id=assignment.group_id,
        attempt=assignment.attempt,
    )
    trajectory.MergeFrom(trajectory_pb2.Trajectory(**fields))  # type: ignore[arg-type]
    return trajectory.SerializeToString()
