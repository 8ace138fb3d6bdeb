"""Token graphs of a rollout that a further attempt went on with: what was read and sampled, each token once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.v1 import trajectory_pb2


def first_turns(graph: trajectory_pb2.TokenGraph, turns: int) -> trajectory_pb2.TokenGraph | None:
    """The graph up to so many samples; None when it has fewer.

    What was sampled after the last turn that the journal tells came to nothing: the agent that asked for it is gone.
    """
    sampled = [i for i, node in enumerate(graph.nodes) if node.role == trajectory_pb2.TOKEN_ROLE_SAMPLED]
    if len(sampled) < turns:
        return None
    kept = trajectory_pb2.TokenGraph()
    kept.CopyFrom(graph)
    del kept.nodes[sampled[turns - 1] + 1 if turns else 0 :]
    return kept


def joined(graphs: Sequence[trajectory_pb2.TokenGraph]) -> list[trajectory_pb2.TokenGraph]:
    """One graph for each agent, tokenizer and model: a forest may have many roots.

    A later attempt's model reads the conversation anew, and as it renders it now. So what an earlier attempt sampled is
    sampled in its own graph, and context in the later one.
    """
    found: dict[tuple[str, str, str], trajectory_pb2.TokenGraph] = {}
    for graph in graphs:
        key = (graph.agent_id, graph.tokenizer_digest, graph.model)
        if key not in found:
            found[key] = trajectory_pb2.TokenGraph()
            found[key].CopyFrom(graph)
        else:
            append(found[key], graph)
    return list(found.values())


def append(to: trajectory_pb2.TokenGraph, graph: trajectory_pb2.TokenGraph) -> None:
    """Adds the trees of another graph."""
    before = len(to.nodes)
    for node in graph.nodes:
        added = to.nodes.add()
        added.CopyFrom(node)
        if node.HasField("parent"):
            added.parent = node.parent + before
