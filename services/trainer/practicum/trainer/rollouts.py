"""The run's side of the executor: submits tasks, and hears through one stream how their rollouts ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Sized
from contextlib import aclosing

import structlog
from grpc import aio

from practicum.common.executors import Executors
from practicum.trainer.accounting import BusyClock
from practicum.trainer.groups import GroupBook
from practicum.trainer.leader import call_leader
from practicum.trainer.outcome import RunFailed
from practicum.trainer.retry import reason
from practicum.trainer.stream import CREDITS, trajectories
from practicum.v1 import executor_pb2, task_pb2, trainer_pb2, trajectory_pb2

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 600.0
LEAVE_SECONDS = 3.0
# Between a person's being told that something is waited for: soon at first, then seldom.
FIRST_NOTE_SECONDS, MOST_NOTE_SECONDS = 2.0, 600.0

Group = list[trajectory_pb2.Trajectory]


class Rollouts:
    """Runs groups of rollouts for one run. Methods are called from one event loop."""

    def __init__(self, addresses: str, *, run_id: str, label: str) -> None:
        """`addresses`: of one executor or of several, with commas between. `label`: the name of the one that holds the
        run's id."""
        self._executors = Executors(addresses)
        self._labels = {label: run_id}
        self._consumer = f"run.{run_id}"
        self._book = GroupBook()
        self._whole: dict[str, asyncio.Future[Group]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._deaf = ""
        self.busy = BusyClock()
        self.unexpected = 0

    async def start(self) -> None:
        """Cancels what an earlier start left running, and begins to listen."""
        await self.cancel("the run was started again")
        self._listening = asyncio.create_task(self._listen())

    async def run(self, task: task_pb2.Task) -> Group:
        """Submits a task and waits until its whole group has ended."""
        return (await self.run_all([task]))[0]

    async def run_all(self, tasks: Sequence[task_pb2.Task]) -> list[Group]:
        """The groups of tasks, which run side by side."""
        if self._deaf:
            raise RunFailed(self._deaf)
        futures = [self._expect(task) for task in tasks]
        try:
            await self._submit(tasks)
            return list(await asyncio.gather(*futures))
        except aio.AioRpcError as error:
            raise RunFailed(f"the executor did not run the tasks: {reason(error)}") from error
        finally:
            for task in tasks:
                self._give_up(task)

    async def cancel(self, why: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Cancels whatever of this run has not ended."""
        request = executor_pb2.CancelTasksRequest(labels=self._labels, reason=why)
        timeout = min(seconds, 30)
        await call_leader(self._executors, lambda stub: stub.CancelTasks(request, timeout=timeout), seconds=seconds)

    async def leave(self, why: str) -> None:
        """Cancels as far as the executor can be reached now; the next start cancels again."""
        try:
            await self.cancel(why, seconds=LEAVE_SECONDS)
        except aio.AioRpcError as error:
            log.warning("rollouts_left_running", detail=reason(error))

    async def stored(
        self, stage: trainer_pb2.SftStage, *, consumer: str, note: Callable[[str], None]
    ) -> list[trajectory_pb2.Trajectory]:
        """Waits until enough of the stage's trajectories are stored, and returns them. `note`: told now and then how
        many there are."""
        outcomes = [trajectory_pb2.OUTCOME_FINISHED, trajectory_pb2.OUTCOME_MAX_STEPS]
        wanted = executor_pb2.TrajectoryFilter(labels=stage.labels, outcomes=outcomes)
        if stage.HasField("min_reward"):
            wanted.min_reward = stage.min_reward
        opening = executor_pb2.OpenConsumer(consumer=consumer, filter=wanted, credits=CREDITS)
        found: dict[str, trajectory_pb2.Trajectory] = {}
        noting = asyncio.create_task(note_waiting(found, stage.trajectories, note))
        try:
            async with aclosing(trajectories(self._executors, opening)) as coming:
                async for trajectory in coming:
                    found[trajectory.rollout_id] = trajectory
                    if len(found) == stage.trajectories:
                        break
        finally:
            noting.cancel()
        await self._delete(consumer)
        return [found[rollout_id] for rollout_id in sorted(found)]

    async def forget(self) -> None:
        """Has the executor forget this run's position, when the run is done."""
        await self._stop_listening()
        await self._delete(self._consumer)

    async def close(self) -> None:
        """Stops listening."""
        await self._stop_listening()
        await self._executors.close()

    async def _delete(self, consumer: str) -> None:
        request = executor_pb2.DeleteConsumerRequest(consumer=consumer)
        await call_leader(
            self._executors, lambda stub: stub.DeleteConsumer(request, timeout=30), seconds=PATIENCE_SECONDS
        )

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def _expect(self, task: task_pb2.Task) -> asyncio.Future[Group]:
        self._book.expect(task.id, task.rollouts)
        self.busy.change(task.rollouts)
        self._whole[task.id] = asyncio.get_running_loop().create_future()
        return self._whole[task.id]

    def _give_up(self, task: task_pb2.Task) -> None:
        self._whole.pop(task.id, None)
        self.busy.change(-self._book.forget(task.id))

    async def _submit(self, tasks: Sequence[task_pb2.Task]) -> None:
        request = executor_pb2.SubmitTasksRequest(tasks=tasks)
        await call_leader(self._executors, lambda stub: stub.SubmitTasks(request, timeout=60), seconds=PATIENCE_SECONDS)

    async def _listen(self) -> None:
        wanted = executor_pb2.TrajectoryFilter(labels=self._labels)
        # From the oldest: nothing tells when the stream is open, and what ends before that must be heard of too.
        opening = executor_pb2.OpenConsumer(consumer=self._consumer, filter=wanted, credits=CREDITS)
        try:
            async with aclosing(trajectories(self._executors, opening)) as coming:
                async for trajectory in coming:
                    self._take(trajectory)
        except aio.AioRpcError as error:
            self._fail(reason(error))
        except Exception as error:  # noqa: BLE001 - whoever waits for a group would wait for ever
            self._fail(repr(error))

    def _take(self, trajectory: trajectory_pb2.Trajectory) -> None:
        if not self._book.add(trajectory):
            self.unexpected += 1
            return
        self.busy.change(-1)
        group = self._book.take(trajectory.task_id)
        if group is not None and not (future := self._whole[trajectory.task_id]).done():
            future.set_result(group)

    def _fail(self, why: str) -> None:
        log.error("stream_ended", detail=why)
        self._deaf = f"the executor's stream of trajectories can't be read: {why}"
        for future in self._whole.values():
            if not future.done():
                future.set_exception(RunFailed(self._deaf))


async def note_waiting(found: Sized, wanted: int, note: Callable[[str], None]) -> None:
    """Tells how many of the wanted trajectories are there, until it is cancelled."""
    seconds = FIRST_NOTE_SECONDS
    while True:
        await asyncio.sleep(seconds)
        note(f"waits for trajectories: {len(found)} of {wanted} are stored")
        seconds = min(2 * seconds, MOST_NOTE_SECONDS)
