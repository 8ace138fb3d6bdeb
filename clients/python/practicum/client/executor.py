"""The executor's client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from practicum.client.channel import Client
from practicum.client.consumer import Consumer
from practicum.client.events import Assembler
from practicum.client.route import Route
from practicum.client.submission import Submission
from practicum.client.tracing import metadata_of
from practicum.v1 import executor_pb2, message_pb2, task_pb2, trajectory_pb2

CALL_SECONDS = 30.0
ASK_SECONDS = 0.1


class ExecutorClient(Client):
    """Calls the executor. Every method raises CallFailed; close it, or use it as a context manager."""

    def __init__(self, address: str = "127.0.0.1:50051") -> None:
        """`address`: where several executors have one database, those of all, with commas between: the one that leads
        is found, and found again when another leads."""
        self._route = Route(address)

    def close(self) -> None:
        """Closes its connections."""
        self._route.close()

    def submit(
        self, tasks: Iterable[task_pb2.Task], *, traceparent: str | None = None
    ) -> list[executor_pb2.SubmittedTask]:
        """Submits tasks, in batches. When it returns, a crash of the executor loses none.

        Safe to repeat for tasks with ids. A batch whose answer did not come is repeated under its request id; one that
        the executor has no room for waits for as long as it says. SubmitFailed tells what was accepted before.

        `traceparent`: W3C's trace context of who wants this; None: OpenTelemetry's present one, if any.
        """
        return Submission(self._route, metadata_of(traceparent)).run(list(tasks))

    def cancel(
        self, task_ids: Iterable[str] = (), *, labels: Mapping[str, str] | None = None, reason: str = "by the caller"
    ) -> int:
        """Cancels what has not ended of these tasks, and of those with all these labels. Returns the rollouts."""
        request = executor_pb2.CancelTasksRequest(task_ids=task_ids, labels=labels or {}, reason=reason)
        return self._route.call(lambda stub: stub.CancelTasks(request, timeout=CALL_SECONDS)).cancelled_rollouts

    def trajectories(
        self,
        consumer: str,
        *,
        where: executor_pb2.TrajectoryFilter | None = None,
        from_now: bool = False,
        limit: int = 0,
        credits: int = 64,
    ) -> Generator[trajectory_pb2.Trajectory, None, None]:
        """Trajectories as rollouts end, each once, from where this consumer stopped reading; `limit` 0: without an end.

        A trajectory is acked when the next is asked for: break out of the loop, and the last one comes again.
        Breaks of the connection are bridged.
        """
        opened = executor_pb2.OpenConsumer(
            consumer=consumer, filter=where, credits=credits, from_cursor=-1 if from_now else 0
        )
        yield from Consumer(self._route, opened).trajectories(limit)

    def query(
        self,
        where: executor_pb2.TrajectoryFilter | None = None,
        *,
        rollout_ids: Sequence[str] = (),
        limit: int = 0,
    ) -> Generator[trajectory_pb2.Trajectory, None, None]:
        """Stored trajectories, once, in order of completion."""
        request = executor_pb2.QueryTrajectoriesRequest(filter=where, rollout_ids=rollout_ids, limit=limit)
        assembler = Assembler()
        for response in self._route.stream(lambda stub: stub.QueryTrajectories(request)):
            for _, trajectory in assembler.trajectories(response.events):
                yield trajectory

    def watch(self, session_id: str, *, from_sequence: int = 1, follow: bool = True) -> Iterator[message_pb2.Message]:
        """A session's journal, and what is said until it ends."""
        request = executor_pb2.WatchSessionRequest(
            session_id=session_id, from_sequence=from_sequence, no_follow=not follow
        )
        for response in self._route.stream(lambda stub: stub.WatchSession(request)):
            yield from response.messages

    def send(
        self,
        session_id: str,
        what: str | message_pb2.Message,
        *,
        sender: str = "user",
        to: str | None = None,
        topic: str | None = None,
        priority: int = 0,
        patience: float = 0.0,
    ) -> executor_pb2.SendMessageResponse:
        """Says something into a session that has not ended, to one receiver or to all. It is in the journal then.

        `what`: a text, or a whole Message, whose own fields count then. That nobody can be given it is known a moment
        later: for so many seconds of `patience` the answer's `error` is waited for. Who subscribes as the sender gets
        it as a Message, however late.
        """
        message = message_pb2.Message(sender=sender, receiver=to, topic=topic, priority=priority)
        if isinstance(what, str):
            message.text = what
        else:
            message.MergeFrom(what)
        message.session_id = session_id
        message.id = message.id or uuid.uuid4().hex  # So that a repeat of the call is known as one.
        request = executor_pb2.SendMessageRequest(message=message)
        metadata, until = metadata_of(None), time.monotonic() + patience
        while True:
            answer = self._route.call(lambda stub: stub.SendMessage(request, timeout=CALL_SECONDS, metadata=metadata))
            if answer.HasField("error") or time.monotonic() + ASK_SECONDS > until:
                return answer
            time.sleep(ASK_SECONDS)

    def subscribe(
        self, session_id: str, receiver: str = "", *, topics: Iterable[str] = (), from_sequence: int | None = None
    ) -> Iterator[message_pb2.Message]:
        """What is said in a session to a receiver (and to all), or on topics, until it ends; the lower priority first.

        It begins at once: nothing that is said after the return is missed. `from_sequence`: also what was said before,
        from this place in the journal on.
        """
        request = executor_pb2.SubscribeRequest(
            session_id=session_id, receiver=receiver, topics=topics, from_sequence=from_sequence
        )
        begun = [self._route.stub.Subscribe(request)]
        begun[0].initial_metadata()
        responses = self._route.stream(lambda stub: begun.pop() if begun else stub.Subscribe(request))
        return (message for response in responses for message in response.messages)

    def task(self, task_id: str) -> executor_pb2.TaskStatus:
        """How a task stands."""
        request = executor_pb2.GetTaskRequest(task_id=task_id)
        return self._route.call(lambda stub: stub.GetTask(request, timeout=CALL_SECONDS)).status

    def tasks(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[executor_pb2.RolloutState.ValueType] = (),
    ) -> Iterator[executor_pb2.TaskStatus]:
        """Tasks, newest first: those with all these labels, and a rollout in one of these states if any is given."""
        request = executor_pb2.ListTasksRequest(labels=labels or {}, states=states, page_size=1_000)
        while True:
            page = self._route.call(lambda stub: stub.ListTasks(request, timeout=CALL_SECONDS))
            yield from page.tasks
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def requeue(self, task_ids: Iterable[str] = (), *, labels: Mapping[str, str] | None = None) -> int:
        """Puts the dead letters of these tasks, and of those with all these labels, back. Returns the rollouts."""
        request = executor_pb2.RequeueTasksRequest(task_ids=task_ids, labels=labels or {})
        return self._route.call(lambda stub: stub.RequeueTasks(request, timeout=CALL_SECONDS)).requeued_rollouts

    def nodes(self) -> list[executor_pb2.NodeInfo]:
        """Nodes, by id."""
        request = executor_pb2.ListNodesRequest()
        return list(self._route.call(lambda stub: stub.ListNodes(request, timeout=CALL_SECONDS)).nodes)

    def drain(self, node_id: str) -> None:
        """Has a node finish what it runs and take nothing new, until it is started again."""
        request = executor_pb2.DrainNodeRequest(node_id=node_id)
        self._route.call(lambda stub: stub.DrainNode(request, timeout=CALL_SECONDS))

    def queues(self) -> list[executor_pb2.QueueStats]:
        """Counts of each queue, by name."""
        request = executor_pb2.GetQueueStatsRequest()
        return list(self._route.call(lambda stub: stub.GetQueueStats(request, timeout=CALL_SECONDS)).queues)
