"""Thousands of mutated messages at the executor's public calls: it stays up, and its state consistent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import Message
from support.scripted_node import ScriptedNode
from support.services import Services

from practicum.v1 import dispatch_pb2, executor_pb2, executor_pb2_grpc, message_pb2, task_pb2, trajectory_pb2

SEED = 20_261_121
CALLS = {"sqlite": 10_000, "postgresql": 4_000}
"""PostgreSQL refuses more, such as text with a NUL, and is slower."""
STREAMS = {"StreamTrajectories", "Connect", "UploadTrajectory"}
SERVER_STREAMS = {"QueryTrajectories", "WatchSession", "Subscribe"}
# What a wrong request may be answered with. UNKNOWN is what gRPC makes of an exception that nobody foresaw, and of
# bytes that are no message; of these alone it is right.
FORESEEN = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
NO_MESSAGE = "DecodeError"


def corpus() -> dict[str, list[Message]]:
    """Right messages, by call."""
    task = task_pb2.Task(
        id="fuzz-1",
        instruction="open box 17",
        environment=task_pb2.EnvironmentSpec(name="boxes", parameters_json='{"box": 17}'),
        agent=task_pb2.AgentSpec(kind="fuzzed_agent", config_json="{}"),
        scoring=task_pb2.Scoring(ground_truth="apple"),
        limits=task_pb2.Limits(max_steps=3, max_total_tokens=100),
        rollouts=2,
        queue="fuzz",
        labels={"run": "fuzz"},
        required_node_labels={"gpu": "none"},
    )
    task.limits.schedule_deadline.FromSeconds(60)
    task.straggler_cutoff.after_usable = 1
    e, d, wanted = executor_pb2, dispatch_pb2, executor_pb2.TrajectoryFilter(labels={"run": "fuzz"}, min_reward=0.5)
    said = message_pb2.Message(id="m", session_id="good/0", sender="user", receiver="agent", text="hello", topic="t")
    stream = [
        e.StreamTrajectoriesRequest(open=e.OpenConsumer(consumer="fuzz", filter=wanted, credits=4)),
        e.StreamTrajectoriesRequest(ack=e.AckCursor(cursor=2)),
        e.StreamTrajectoriesRequest(credits=e.GrantCredits(credits=3)),
    ]
    node = [
        d.ConnectRequest(
            register=d.Register(node_id="fuzz", incarnation="1", slots=1, agent_kinds=["none"], labels={"a": "b"})
        ),
        d.ConnectRequest(heartbeat=d.Heartbeat(lease_ids=["x"], running=1), messages=[said]),
        d.ConnectRequest(finished=[d.Finished(lease_id="x", rollout_id="good/0", trajectory=b"\x08\x01")]),
    ]
    return {
        "SubmitTasks": [e.SubmitTasksRequest(request_id="r", tasks=[task, task])],
        "GetTask": [e.GetTaskRequest(task_id="good")],
        "ListTasks": [e.ListTasksRequest(labels={"run": "fuzz"}, page_size=3, page_token="12", states=[1, 5])],
        "CancelTasks": [e.CancelTasksRequest(task_ids=["fuzz-1", "x"], labels={"run": "fuzz"}, reason="fuzz")],
        "RequeueTasks": [e.RequeueTasksRequest(task_ids=["fuzz-1"], labels={"run": "fuzz"})],
        "StreamTrajectories": stream,
        "QueryTrajectories": [e.QueryTrajectoriesRequest(filter=wanted, limit=3, rollout_ids=["good/0", "x"])],
        "DeleteConsumer": [e.DeleteConsumerRequest(consumer="fuzz")],
        "SendMessage": [e.SendMessageRequest(message=said)],
        "Subscribe": [e.SubscribeRequest(session_id="good/0", receiver="user", topics=["t"])],
        "WatchSession": [e.WatchSessionRequest(session_id="good/0", from_sequence=1, no_follow=True)],
        "GetQueueStats": [e.GetQueueStatsRequest()],
        "ListNodes": [e.ListNodesRequest()],
        "DrainNode": [e.DrainNodeRequest(node_id="fuzz")],
        "Connect": node,
        "UploadTrajectory": [d.UploadTrajectoryRequest(lease_id="x", digest="sha256:0", data=b"abc")],
    }


class Mutator:
    """Makes wrong messages of right ones, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def mutate(self, message: Message) -> bytes:
        """Bytes that are near a message: most parse, and say something else."""
        choose = self._random.random()
        if choose < 0.5:
            return self._with_other_values(message).SerializeToString()
        data = bytearray(message.SerializeToString())
        for _ in range(self._random.randint(1, 4)):
            self._damage(data)
        return bytes(data)

    def _damage(self, data: bytearray) -> None:
        place = self._random.randrange(len(data) + 1)
        match self._random.randrange(4):
            case 0 if data:
                data[place % len(data)] = self._random.randrange(256)
            case 1:
                data[place:place] = self._random.randbytes(self._random.randint(1, 8))
            case 2:
                del data[place : place + self._random.randint(1, 8)]
            case _:
                data += data[place : place + 64]  # As if a field came twice.

    def _with_other_values(self, message: Message) -> Message:
        changed = type(message)()
        changed.CopyFrom(message)
        holder: Message = changed
        while True:
            fields = list(holder.DESCRIPTOR.fields)
            if not fields:
                return changed
            field = self._random.choice(fields)
            if field.is_repeated or field.message_type is None:
                self._set(holder, field)
                return changed
            holder = getattr(holder, field.name)
            holder.SetInParent()

    def _set(self, holder: Message, field: object) -> None:
        name, value = field.name, self._value(field)  # type: ignore[attr-defined]
        try:
            if field.is_repeated:  # type: ignore[attr-defined]
                holder.ClearField(name)
                getattr(holder, name).extend([value] * self._random.choice([0, 1, 2, 50]))
            else:
                setattr(holder, name, value)
        except (TypeError, ValueError, AttributeError):
            holder.ClearField(name)  # Maps and repeated messages: as if they had been left out.

    def _value(self, field: object) -> object:
        kind = field.cpp_type  # type: ignore[attr-defined]
        if kind in (1, 2, 3, 4, 8):  # Integers and enums.
            return self._random.choice([0, 1, -1, 2**31 - 1, -(2**31), 2**62, -(2**63), self._random.randrange(1000)])
        if kind in (5, 6):
            return self._random.choice([0.0, -1.0, float("nan"), float("inf"), 1e308])
        if kind == 7:
            return self._random.random() < 0.5
        return self._random.choice(
            ["", "\0", "good/0", "good", "../..", "ü" * 40, "x" * 5000, "'; DROP TABLE tasks;--"]
        )


class Door:
    """Calls that send and receive bytes."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def call(self, name: str, frames: list[bytes]) -> str:
        """Makes one call; returns what is wrong with its answer, if something is."""
        service = "DispatchService" if name in ("Connect", "UploadTrajectory") else "ExecutorService"
        path = f"/practicum.v1.{service}/{name}"
        try:
            if name == "UploadTrajectory":
                self.channel.stream_unary(path)(iter(frames), timeout=5)
            elif name in STREAMS:
                self._read(self.channel.stream_stream(path)(iter(frames), timeout=0.3))
            elif name in SERVER_STREAMS:
                self._read(self.channel.unary_stream(path)(frames[0], timeout=0.3))
            else:
                self.channel.unary_unary(path)(frames[0], timeout=10)
        except grpc.RpcError as error:
            if error.code() not in FORESEEN and NO_MESSAGE not in (error.details() or ""):
                return f"{error.code().name}: {error.details()}"
        return ""

    @staticmethod
    def _read(answers: Iterator[bytes]) -> None:
        for _ in answers:
            pass


@pytest.mark.processes
@pytest.mark.parametrize("database", CALLS)
def test_mutated_messages_do_no_harm(services: Services, request: pytest.FixtureRequest, database: str) -> None:
    """Every answer is a foreseen status; what was accepted before is untouched, and what comes after runs."""
    place = ("--database", request.getfixturevalue("postgres_url")) if database == "postgresql" else ()
    executor = services.executor("--max-backlog", "5000", *place)
    door, mutator, chooser = Door(executor.address), Mutator(SEED), random.Random(SEED)
    stub = executor_pb2_grpc.ExecutorServiceStub(door.channel)
    stub.SubmitTasks(executor_pb2.SubmitTasksRequest(tasks=[good("good")]))
    unforeseen: Counter[str] = Counter()
    calls = corpus()
    # Streams wait for their deadline when a mutation leaves them right: fewer of them, with more frames.
    weights = [2 if name in STREAMS | SERVER_STREAMS else 30 for name in calls]
    sent = 0
    while sent < CALLS[database]:
        (name,) = chooser.choices(list(calls), weights)
        frames = [mutator.mutate(message) for message in calls[name]]
        if wrong := door.call(name, frames):
            unforeseen[f"{name}: {wrong}"] += 1
        sent += len(frames)
    assert not unforeseen, executor.text[-3000:]
    assert executor.process is not None and executor.process.poll() is None
    check_consistent(stub, executor.address)


def good(task_id: str) -> task_pb2.Task:
    return task_pb2.Task(id=task_id, instruction="open box 17", agent=task_pb2.AgentSpec(kind="tool_agent"))


def check_consistent(stub: executor_pb2_grpc.ExecutorServiceStub, address: str) -> None:
    """Counts agree with the tasks, and both the old task and a new one are run."""
    stub.CancelTasks(executor_pb2.CancelTasksRequest(labels={"run": "fuzz"}))
    stub.SubmitTasks(executor_pb2.SubmitTasksRequest(tasks=[good("after")]))
    queues = stub.GetQueueStats(executor_pb2.GetQueueStatsRequest()).queues
    waiting = [executor_pb2.ROLLOUT_STATE_QUEUED, executor_pb2.ROLLOUT_STATE_RUNNING]
    listed = stub.ListTasks(executor_pb2.ListTasksRequest(states=waiting, page_size=1000)).tasks
    open_rollouts = [r for task in listed for r in task.rollouts if r.state in waiting]
    assert sum(queue.queued + queue.running for queue in queues) == len(open_rollouts)
    node = ScriptedNode(address, "honest", slots=8)
    with node.beating():  # For as long as the lease of one that was mutated lasts.
        for assignment in node.assignments(2):
            assert assignment.rollout_id in ("good/0", "after/0")
            node.finish(assignment, "done")
    opened = executor_pb2.StreamTrajectoriesRequest(
        open=executor_pb2.OpenConsumer(
            consumer="honest",
            credits=10,
            filter=executor_pb2.TrajectoryFilter(outcomes=[trajectory_pb2.OUTCOME_FINISHED]),
        )
    )
    events = (event for frame in stub.StreamTrajectories(iter([opened])) for event in frame.events)
    found = {event.trajectory.rollout_id for event in events if event.HasField("trajectory")}
    assert found <= {"good/0", "after/0"}
    node.close()
