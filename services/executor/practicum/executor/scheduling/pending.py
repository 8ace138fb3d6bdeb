"""What waits for a node, and who is served next: by priority, then by shares of queues, then first in, first out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from practicum.executor.scheduling.lines import Line
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.pools import Pool
from practicum.executor.scheduling.rollouts import Requirement, Rollout, State
from practicum.executor.scheduling.shares import Clock, Flow, QueueCounts
from practicum.executor.scheduling.timers import Timers

__all__ = ["Pending", "Requirement"]

MIN_LINES = 128


class Pending:
    """Rollouts in lines, or delayed until their next attempt, and the nodes that have room for them.

    A rollout that no node can run blocks no other: those that need something else stand in other lines.
    """

    def __init__(self, weights: Mapping[str, float], nodes: Mapping[str, Node]) -> None:
        self.queues: dict[str, QueueCounts] = {}
        self._weights = weights
        self._nodes = nodes
        self._lines: dict[tuple[Requirement, str, int], Line] = {}
        self._flows: dict[tuple[str, int], Flow] = {}
        self._clocks: dict[int, Clock] = {}
        self._pools: dict[Requirement, Pool] = {}
        self._awake: set[Pool] = set()
        self._delayed: Timers[Rollout] = Timers(lambda rollout: rollout.state is State.QUEUED)
        self._tickets: Iterator[int] = count(1)
        self._max_lines = MIN_LINES
        self._size = 0

    def add(self, rollout: Rollout) -> None:
        """Puts a new rollout at the end of its line."""
        line = self._place(rollout)
        self._size += 1
        line.flow.counts.queued += 1
        line.join(rollout)

    def adopt(self, rollout: Rollout) -> None:
        """A rollout that runs, and has its place should it wait again."""
        self._place(rollout).flow.counts.running += 1

    def delay(self, rollout: Rollout, until: float) -> None:
        """A rollout runs no longer: it waits for a time, then in its old place."""
        self._size += 1
        counts = rollout.line.flow.counts
        counts.running -= 1
        counts.queued += 1
        rollout.not_before, rollout.delayed = until, True
        self._delayed.add(until, rollout)

    def due(self, now: float) -> None:
        """Puts delayed rollouts whose time has come back in line."""
        for rollout in self._delayed.pop(now):
            rollout.delayed = False
            rollout.line.rejoin(rollout)

    def next_due(self) -> float | None:
        """When the next delayed rollout comes back in line."""
        return self._delayed.next_due()

    def next_match(self) -> tuple[Rollout, Node] | None:
        """Who is served next, and the node for it."""
        best = None
        for pool in tuple(self._awake):
            node = pool.spare.best()
            head = pool.head() if node is not None else None
            if node is None or head is None:
                self._awake.discard(pool)
                continue
            rank, rollout = head
            if best is None or (rank, rollout.ticket) < (best[0], best[1].ticket):
                best = rank, rollout, node
        return best[1:] if best is not None else None

    def serve(self, rollout: Rollout) -> None:
        """The rollout that is next gets its node."""
        self._size -= 1
        counts = rollout.line.flow.counts
        counts.queued -= 1
        counts.running += 1
        rollout.line.serve(rollout)

    def ended_running(self, rollout: Rollout) -> None:
        """A rollout that ran has ended."""
        line = rollout.line
        line.members -= 1
        line.flow.counts.running -= 1

    def ended_waiting(self, rollout: Rollout) -> None:
        """A rollout that waited has ended; its state says so."""
        self._size -= 1
        line = rollout.line
        line.members -= 1
        line.flow.counts.queued -= 1
        if not rollout.delayed:
            line.leave()

    def admit(self, node: Node) -> None:
        """A node came."""
        node.pools = [pool for pool in self._pools.values() if node.meets(pool.requirement)]
        self.offer(node)

    def offer(self, node: Node) -> None:
        """A node's load fell."""
        if node.has_room:
            for pool in node.pools:
                pool.offer(node)

    def oldest(self, queue: str) -> float | None:
        """`queued_at` of the rollout that stands in line longest."""
        counts = self.queues.get(queue)
        heads = (line.head() for line in counts.lines if line.waiting) if counts is not None else ()
        return min((head.queued_at for head in heads if head is not None), default=None)

    def __len__(self) -> int:
        return self._size

    def _place(self, rollout: Rollout) -> Line:
        line = self._lines.get((rollout.requirement, rollout.queue, rollout.priority)) or self._open(rollout)
        line.members += 1
        rollout.line, rollout.requirement = line, line.pool.requirement
        rollout.ticket = next(self._tickets)
        return line

    def _open(self, rollout: Rollout) -> Line:
        if len(self._lines) >= self._max_lines:
            self._forget()
        flow = self._flow(rollout.queue, rollout.priority)
        line = Line(self._pool(rollout.requirement), flow)
        flow.counts.lines.append(line)
        self._lines[(line.pool.requirement, rollout.queue, rollout.priority)] = line
        return line

    def _flow(self, queue: str, priority: int) -> Flow:
        if (flow := self._flows.get((queue, priority))) is None:
            clock = self._clocks.setdefault(priority, Clock())
            counts = self.queues.setdefault(queue, QueueCounts())
            stride = 1.0 / self._weights.get(queue, 1.0)
            flow = Flow(priority, next(self._tickets), stride, clock, counts, time=clock.now)
            self._flows[(queue, priority)] = flow
        return flow

    def _pool(self, requirement: Requirement) -> Pool:
        if (pool := self._pools.get(requirement)) is None:
            pool = self._pools[requirement] = Pool(requirement, self._awake)
            for node in self._nodes.values():
                if node.meets(requirement):
                    node.pools.append(pool)
                    pool.offer(node)
        return pool

    def _forget(self) -> None:
        """Drops lines of which no rollout is left, and what only they used."""
        self._lines = {key: line for key, line in self._lines.items() if line.members}
        self._flows = {(queue, priority): line.flow for (_, queue, priority), line in self._lines.items()}
        self._clocks = {flow.priority: flow.clock for flow in self._flows.values()}
        for counts in self.queues.values():
            counts.lines = [line for line in counts.lines if line.members]
        self.queues = {queue: counts for queue, counts in self.queues.items() if counts.lines}
        self._pools = {line.pool.requirement: line.pool for line in self._lines.values()}
        for pool in self._pools.values():
            pool.forget()
        kept = set(self._pools.values())
        for node in self._nodes.values():
            node.pools = [pool for pool in node.pools if pool in kept]
        self._max_lines = 2 * len(self._lines) + MIN_LINES
