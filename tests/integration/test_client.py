"""The Python client against a real executor."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from support.boxes import boxes_tasks
from support.scripted_node import ScriptedNode
from support.services import Service, Services, unused_address

from practicum.client import (
    CallFailed,
    ExecutorClient,
    Message,
    SubmitFailed,
    Task,
    read_tasks,
    read_trajectories,
    submission,
    write_trajectories,
)


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


@pytest.fixture
def client(executor: Service) -> Iterator[ExecutorClient]:
    with ExecutorClient(executor.address) as client:
        yield client


def run(node: ScriptedNode, count: int, **fields: object) -> None:
    """Ends so many rollouts, one after the other."""
    for assignment in node.assignments(count):
        node.finish(assignment, assignment.rollout_id, **fields)
        next(frame for frame in iter(node.next_frame, None) if frame.acked_leases)


def test_a_reader_goes_on_where_it_stopped(executor: Service, client: ExecutorClient) -> None:
    """What it had in its hands when it left comes again, and nothing else twice."""
    client.submit(boxes_tasks(3, "tool_agent"))
    run(ScriptedNode(executor.address), 3)
    first = client.trajectories("reader")
    assert [next(first).task_id, next(first).task_id] == ["t0", "t1"]
    first.close()
    again = client.trajectories("reader")
    assert [next(again).task_id, next(again).task_id] == ["t1", "t2"]
    again.close()


def test_a_limit_acks_the_last_too(executor: Service, client: ExecutorClient) -> None:
    """The next reader of that name goes on behind it."""
    client.submit(boxes_tasks(3, "tool_agent"))
    run(ScriptedNode(executor.address), 3)
    assert [t.task_id for t in client.trajectories("reader", limit=2)] == ["t0", "t1"]
    assert [t.task_id for t in client.trajectories("reader", limit=1)] == ["t2"]


def test_a_reader_bridges_a_restart_of_the_executor(executor: Service, client: ExecutorClient) -> None:
    """Each trajectory comes once, although the stream broke."""
    client.submit(boxes_tasks(2, "tool_agent"))
    node = ScriptedNode(executor.address)
    run(node, 2)
    reader = client.trajectories("reader")
    found = [next(reader).task_id]
    executor.kill()
    executor.launch()
    executor.wait_serving()
    found.append(next(reader).task_id)
    assert found == ["t0", "t1"]
    reader.close()


def test_large_trajectories_are_put_together(executor: Service, client: ExecutorClient, tmp_path: Path) -> None:
    """And survive a file."""
    client.submit(boxes_tasks(1, "tool_agent"))
    run(ScriptedNode(executor.address), 1, metadata_json="x" * 3_000_000)
    (found,) = client.query()
    assert len(found.metadata_json) == 3_000_000
    assert write_trajectories(tmp_path / "trajectories.jsonl", [found]) == 1
    assert list(read_trajectories(tmp_path / "trajectories.jsonl")) == [found]


def test_wrong_tasks_are_told_field_by_field(client: ExecutorClient) -> None:
    """A person reads what to mend."""
    with pytest.raises(CallFailed) as caught:
        client.submit([Task(id="a b", instruction="open box 17")])
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(caught.value.fields) == {"tasks[0].id", "tasks[0].agent.kind"}


def test_a_submit_without_an_answer_is_repeated_and_doubles_nothing(
    executor: Service, client: ExecutorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks without ids, to an executor that hangs until the first call's time is up."""
    assert client.queues() == []
    send(executor, signal.SIGSTOP)
    monkeypatch.setattr(submission, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(time, "sleep", going_on(executor, time.sleep))
    tasks = boxes_tasks(3, "tool_agent")
    for task in tasks:
        task.id = ""
    assert len(client.submit(tasks)) == 3
    assert [queue.queued for queue in client.queues()] == [3]


def send(executor: Service, number: signal.Signals) -> None:
    """A signal to its process."""
    assert executor.process is not None
    executor.process.send_signal(number)


def going_on(executor: Service, sleep: Callable[[float], None]) -> Callable[[float], None]:
    """Has the executor go on whenever the client pauses."""

    def pause(seconds: float) -> None:
        send(executor, signal.SIGCONT)
        sleep(seconds)

    return pause


def test_more_tasks_than_the_executor_has_room_for_are_taken_bit_by_bit(services: Services) -> None:
    """As room comes."""
    executor = services.executor("--max-backlog", "20")
    node = ScriptedNode(executor.address)
    ending = threading.Thread(target=lambda: [node.finish(*node.assignments(1)) for _ in range(30)], daemon=True)
    ending.start()
    with ExecutorClient(executor.address) as client:
        submitted = client.submit(boxes_tasks(30, "tool_agent"))
        assert [task.task_id for task in submitted] == [f"t{index}" for index in range(30)]
        assert len(list(client.trajectories("reader", limit=30))) == 30
    ending.join(20)


def test_a_submit_that_fails_midway_tells_what_was_accepted(
    client: ExecutorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And names the wrong task by its place among all."""
    monkeypatch.setattr(submission, "BATCH", 2)
    with pytest.raises(SubmitFailed, match="2 tasks of earlier batches were accepted") as caught:
        client.submit([*boxes_tasks(3, "tool_agent"), Task(id="a b", instruction="open box 17")])
    assert [task.task_id for task in caught.value.accepted] == ["t0", "t1"]
    assert set(caught.value.fields) == {"tasks[3].id", "tasks[3].agent.kind"}


def test_a_wrong_address_is_named() -> None:
    """With what to check."""
    address = unused_address()
    with ExecutorClient(address) as client, pytest.raises(CallFailed, match=f"nothing answers at {address}"):
        client.nodes()


def test_a_wrong_line_of_a_task_file_is_named(tmp_path: Path) -> None:
    """By its number."""
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a"}\n\n{"nonsense": 1}\n')
    with pytest.raises(ValueError, match=r"tasks\.jsonl, line 3: .*nonsense"):
        read_tasks(path)


def test_what_is_sent_is_received_by_who_subscribed(executor: Service, client: ExecutorClient) -> None:
    """From the moment the subscription returns; and again from a place in the journal."""
    client.submit(boxes_tasks(1, "tool_agent"))
    heard, on_topic = client.subscribe("t0/0", "agent"), client.subscribe("t0/0", topics=["news"])
    client.send("t0/0", "hello", to="agent", priority=-1)
    client.send("t0/0", Message(custom_json="[1]", sender="planner", topic="news"))
    said = [next(heard), next(heard)]
    assert [(m.sender, m.text, m.custom_json, m.priority) for m in said] == [
        ("user", "hello", "", -1),
        ("planner", "", "[1]", 0),
    ]
    assert next(on_topic).sequence == 2
    assert next(client.subscribe("t0/0", "agent", from_sequence=2)).sequence == 2
    run(ScriptedNode(executor.address), 1)
    assert list(heard) == list(on_topic) == []


def test_a_subscription_to_nothing_says_what_is_wrong(client: ExecutorClient) -> None:
    """As every call does."""
    with pytest.raises(CallFailed) as caught:
        next(client.subscribe("t0/0"))
    assert list(caught.value.fields) == ["receiver"]
