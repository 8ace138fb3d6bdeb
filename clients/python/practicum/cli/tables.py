"""What the services tell, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from practicum.v1 import executor_pb2, trajectory_pb2

OUTCOMES = {
    value: name.removeprefix("OUTCOME_").lower().replace("_", " ") for name, value in trajectory_pb2.Outcome.items()
}


def table(*columns: str, title: str = "") -> Table:
    """An empty table; columns that begin with `#` are numbers."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column.lstrip("#"), justify="right" if column.startswith("#") else "left", no_wrap=True)
    return made


def nodes_table(nodes: Iterable[executor_pb2.NodeInfo]) -> Table:
    """Nodes with their loads."""
    made = table("node", "#running", "#slots", "load", "#finished", "state", "agents")
    for node in nodes:
        made.add_row(
            node.node_id,
            str(node.running),
            str(node.slots),
            bar(node.load),
            str(node.finished),
            state_of(node),
            ", ".join(node.agent_kinds),
        )
    return made


def state_of(node: executor_pb2.NodeInfo) -> str:
    """Whether it is there, and takes work."""
    return "absent" if not node.connected else "draining" if node.draining else "connected"


def queues_table(queues: Iterable[executor_pb2.QueueStats]) -> Table:
    """Counts of each queue."""
    made = table("queue", "#waiting", "#running", "#done", "#cancelled", "#dead", "#retried", "#oldest")
    for q in queues:
        counts = (q.queued, q.running, q.done, q.cancelled, q.dead, q.retried)
        made.add_row(q.queue, *(str(count) for count in counts), f"{q.oldest_age.ToMilliseconds() / 1000:.1f} s")
    return made


def trajectories_table(trajectories: Sequence[trajectory_pb2.Trajectory]) -> Table:
    """One line each."""
    made = table("rollout", "outcome", "#reward", "#steps", "#tokens", "#seconds", "node", "answer")
    for t in trajectories:
        made.add_row(
            t.rollout_id,
            OUTCOMES.get(t.outcome, str(t.outcome)),
            f"{t.reward:g}",
            str(len(t.steps)),
            str(t.token_count),
            f"{t.execution_time.ToMilliseconds() / 1000:.2f}",
            t.node_id,
            shorten(t.final_answer),
        )
    return made


def bar(share: float, width: int = 10) -> str:
    """A share as a bar."""
    full = round(min(share, 1.0) * width)
    return "█" * full + "░" * (width - full)


def shorten(text: str, width: int = 40) -> str:
    """One line of a text."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
