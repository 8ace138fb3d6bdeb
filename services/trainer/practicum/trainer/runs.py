"""The runs that the trainer knows: starts them, watches over their processes, keeps their events."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from practicum.common.errors import AlreadyExists, NotFound, ResourceExhausted, Unavailable
from practicum.trainer.child import Child, Neighbours
from practicum.trainer.journal import ENDED, Journal, run_of
from practicum.trainer.outcome import EXIT_FAILED, EXIT_STOPPED
from practicum.trainer.validation import check_spec
from practicum.v1 import trainer_pb2

log = structlog.get_logger(__name__)

# In a row without a step in between: for instance when there is not enough memory.
MOST_KILLS = 3


@dataclass(slots=True)
class Entry:
    """A run's spec and events, and its process while it lives."""

    spec: trainer_pb2.RunSpec
    folder: Path
    journal: Journal
    child: Child | None = None
    supervision: asyncio.Task[None] | None = None

    @property
    def run(self) -> trainer_pb2.Run:
        """How it stands."""
        return run_of(self.spec, self.journal.events)

    @property
    def steps(self) -> int:
        """Steps that were told of, by all processes of the run."""
        return sum(event.HasField("step") for event in self.journal.events)

    def note(self, text: str) -> None:
        """Tells a person something. Right before RUN_STATE_FAILED it is the reason."""
        self.journal.append(trainer_pb2.RunEvent(stage=self.run.stage, note=text))

    def tell(self, state: trainer_pb2.RunState.ValueType) -> None:
        """Changes the state."""
        self.journal.append(trainer_pb2.RunEvent(stage=self.run.stage, state=state))
        log.info("run_changed", run_id=self.spec.run_id, state=trainer_pb2.RunState.Name(state))


class Runs:
    """All runs. Methods are called from one event loop."""

    def __init__(self, folder: Path, *, neighbours: Neighbours, max_runs: int) -> None:
        """Reads what an earlier trainer left in the folder; `resume` goes on with it."""
        self._folder = folder
        self._neighbours = neighbours
        self._max_runs = max_runs
        self._entries: dict[str, Entry] = {}
        self._starting = asyncio.Lock()
        self._closed = False
        for spec_file in sorted(folder.glob("*/spec.binpb")):
            self._open(trainer_pb2.RunSpec.FromString(spec_file.read_bytes()))

    async def resume(self) -> None:
        """Goes on with the runs that were running when an earlier trainer was killed; nobody had stopped them."""
        for entry in self._entries.values():
            if entry.journal.events and entry.run.state not in ENDED:
                entry.note("the trainer was killed; the run goes on from its last checkpoint")
                await self._launch(entry)

    async def start(self, spec: trainer_pb2.RunSpec) -> trainer_pb2.Run:
        """Starts a run, or tells how it stands when it was started before and needs nothing."""
        async with self._starting:
            entry = self._entries.get(spec.run_id)
            if entry is not None and entry.spec != spec:
                raise AlreadyExists(
                    f"run {spec.run_id} was started with another spec; choose another id",
                    reason="RUN_ID_REUSED",
                    metadata={"run_id": spec.run_id},
                )
            if entry is not None and (entry.child or entry.run.state == trainer_pb2.RUN_STATE_SUCCEEDED):
                return entry.run
            await asyncio.to_thread(check_spec, spec)
            self._check_room()
            entry = entry or self._add(spec)
            await self._launch(entry)
            return entry.run

    async def _launch(self, entry: Entry) -> None:
        entry.child = Child(entry.folder)
        await entry.child.start(self._neighbours)
        entry.tell(trainer_pb2.RUN_STATE_RUNNING)
        entry.supervision = asyncio.create_task(self._supervise(entry, entry.child))

    def get(self, run_id: str) -> trainer_pb2.Run:
        """How a run stands."""
        return self._entry(run_id).run

    def all(self) -> list[trainer_pb2.Run]:
        """Every run, newest first."""
        runs = [entry.run for entry in self._entries.values()]
        return sorted(runs, key=lambda run: run.started_at.ToNanoseconds(), reverse=True)

    async def watch(self, run_id: str, from_sequence: int) -> AsyncIterator[list[trainer_pb2.RunEvent]]:
        """A run's events from a number on, live until it ends."""
        entry = self._entry(run_id)
        if from_sequence > len(entry.journal.events) and entry.child is None:
            return
        async for events in entry.journal.watch(from_sequence):
            yield events
            # The run may have been started again since: only the last event tells that it ended.
            if events[-1].state in ENDED and events[-1].sequence == len(entry.journal.events):
                return

    async def stop(self, run_id: str) -> trainer_pb2.Run:
        """Stops a run and waits until it has."""
        entry = self._entry(run_id)
        await self._stop(entry)
        return entry.run

    async def close(self) -> None:
        """Stops every run; none is started any more."""
        self._closed = True
        await asyncio.gather(*(self._stop(entry) for entry in self._entries.values()))
        for entry in self._entries.values():
            entry.journal.close()

    async def _stop(self, entry: Entry) -> None:
        if entry.child is not None and entry.supervision is not None:
            await entry.child.stop()
            await asyncio.shield(entry.supervision)

    async def _supervise(self, entry: Entry, child: Child) -> None:
        """Until the run ends. A process that was killed is started again, unless it is killed over and over."""
        killed = 0
        while True:
            steps = entry.steps
            code = await child.listen(entry.journal.append)
            killed = killed + 1 if entry.steps == steps else 1
            if code >= 0 or child.stopping or killed > MOST_KILLS:
                break
            entry.note(f"the run's process ended with signal {-code}; it goes on from its last checkpoint")
            await child.start(self._neighbours)
        entry.child = None
        self._tell_end(entry, child, code)

    def _tell_end(self, entry: Entry, child: Child, code: int) -> None:
        # Killed by the stop's own signal: it had barely begun, or took too long.
        if code == EXIT_STOPPED or (child.stopping and code in (-signal.SIGTERM, -signal.SIGKILL)):
            entry.tell(trainer_pb2.RUN_STATE_STOPPED)
        elif code == 0:
            entry.tell(trainer_pb2.RUN_STATE_SUCCEEDED)
        else:
            if code != EXIT_FAILED:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                entry.note(f"the run's process ended with {how}:\n{child.last_words()}".rstrip(":\n"))
            entry.tell(trainer_pb2.RUN_STATE_FAILED)

    def _open(self, spec: trainer_pb2.RunSpec) -> Entry:
        folder = self._folder / spec.run_id
        self._entries[spec.run_id] = entry = Entry(spec, folder, Journal(folder / "events"))
        return entry

    def _add(self, spec: trainer_pb2.RunSpec) -> Entry:
        folder = self._folder / spec.run_id
        folder.mkdir(exist_ok=True)
        draft = folder / "spec.tmp"
        draft.write_bytes(spec.SerializeToString())
        draft.rename(folder / "spec.binpb")  # It is there as a whole, or the run is not.
        return self._open(spec)

    def _check_room(self) -> None:
        if self._closed:
            raise Unavailable("the trainer is stopping", reason="DRAINING", retry_after_seconds=1.0)
        running = sum(entry.child is not None for entry in self._entries.values())
        if running >= self._max_runs:
            raise ResourceExhausted(
                f"{running} of at most {self._max_runs} runs are running; stop one, or wait",
                reason="CAPACITY",
                retry_after_seconds=10.0,
            )

    def _entry(self, run_id: str) -> Entry:
        if run_id not in self._entries:
            raise NotFound(f"no run is called {run_id!r}", reason="RUN_UNKNOWN", metadata={"run_id": run_id})
        return self._entries[run_id]
