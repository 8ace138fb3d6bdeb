"""The picture of `practicum top`: queues and nodes with what they did since the picture before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from practicum.cli.tables import bar, shorten, state_of, table
from practicum.v1 import executor_pb2

# Titles, headings, totals, and blank lines between.
FIXED_LINES = 8
T = TypeVar("T")
Queues: TypeAlias = Sequence[executor_pb2.QueueStats]
Nodes: TypeAlias = Sequence[executor_pb2.NodeInfo]


@dataclass(frozen=True, slots=True)
class Picture:
    """How things stood at a moment of the monotonic clock."""

    queues: Queues = ()
    nodes: Nodes = ()
    at: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> dict[str, int]:
        """What was done so far, by queue."""
        return {queue.queue: queue.done for queue in self.queues}

    @property
    def finished(self) -> dict[str, int]:
        """What was finished so far, by node."""
        return {node.node_id: node.finished for node in self.nodes}


def rates(now: dict[str, int], before: dict[str, int], seconds: float) -> dict[str, float]:
    """So many a second; none where a count began anew, as with an executor that was started again."""
    if seconds <= 0:
        return dict.fromkeys(now, 0.0)
    return {name: max(count - before.get(name, count), 0) / seconds for name, count in now.items()}


def view(picture: Picture, before: Picture, *, lines: int | None = None) -> RenderableType:
    """Both tables; `lines`: as many as there is room for, else all."""
    seconds = picture.at - before.at
    busy = [queue for queue in picture.queues if queue.queued or queue.running]
    idle = [queue for queue in picture.queues if not (queue.queued or queue.running)]
    room = None if lines is None else max(lines - FIXED_LINES, 2)
    queues = cut([*busy, *idle], None if room is None else max(room // 3, room - len(picture.nodes)))
    nodes = cut(picture.nodes, None if room is None else room - len(queues))
    done = rates(picture.done, before.done, seconds)
    finished = rates(picture.finished, before.finished, seconds)
    return Group(
        queues_view(queues, picture.queues, done), Text(""), nodes_view(nodes, picture.nodes, finished, time.time())
    )


def queues_view(shown: Queues, known: Queues, done: dict[str, float]) -> Table:
    """What waits, runs and gets done."""
    made = table("queue", "#waiting", "#running", "#done/s", "#oldest", "#weight", "#limit", "#dead")
    for q in shown:
        counts, limit = (str(q.queued), str(q.running)), str(q.max_backlog or "-")
        age = duration(q.oldest_age.ToMilliseconds() / 1000)
        made.add_row(shorten(q.queue), *counts, f"{done[q.queue]:.1f}", age, f"{q.weight:g}", limit, str(q.dead))
    waiting, running = total(known, lambda q: q.queued), total(known, lambda q: q.running)
    dead, named = total(known, lambda q: q.dead), f"all {len(known)}"
    oldest = duration(max((q.oldest_age.ToMilliseconds() / 1000 for q in known), default=0.0))
    made.add_row(named, waiting, running, f"{sum(done.values()):.1f}", oldest, "", "", dead, style="bold")
    return made


def nodes_view(shown: Nodes, known: Nodes, finished: dict[str, float], now: float) -> Table:
    """Who runs how much; `now` by the wall clock."""
    made = table("node", "load", "#running", "#slots", "#finished/s", "state", "#seen", "labels")
    for node in shown:
        counts, labels = (str(node.running), str(node.slots)), (f"{k}={v}" for k, v in sorted(node.labels.items()))
        seen = duration(max(now - node.last_seen.ToMilliseconds() / 1000, 0.0))
        rate = f"{finished[node.node_id]:.1f}"
        made.add_row(
            shorten(node.node_id), bar(node.load), *counts, rate, state_of(node), seen, shorten(" ".join(labels))
        )
    running, slots = sum(node.running for node in known), sum(node.slots for node in known)
    connected = sum(node.connected for node in known)
    load, state = bar(running / slots if slots else 0.0), f"{connected} connected"
    rate = f"{sum(finished.values()):.1f}"
    made.add_row(f"all {len(known)}", load, str(running), str(slots), rate, state, style="bold")
    return made


def total(queues: Iterable[executor_pb2.QueueStats], count: Callable[[executor_pb2.QueueStats], int]) -> str:
    """Over all queues."""
    return str(sum(map(count, queues)))


def cut(rows: Sequence[T], room: int | None) -> Sequence[T]:
    """As many of the first as there is room for; the totals tell of all."""
    return rows if room is None else rows[: max(room, 1)]


def duration(seconds: float) -> str:
    """Such as 3.2s, 4m10s or 2h05m."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"
