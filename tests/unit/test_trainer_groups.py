"""Groups become rows to train on, or are rejected whole: never trained as zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from practicum.trainer.consumption import centred, informative, padded, trainable_group
from practicum.trainer.groups import GroupBook, Rejected
from practicum.trainer.rows import GraphError, rows_of
from practicum.trainer.staleness import Lineage, added, histogram
from practicum.v1 import trajectory_pb2

PROMPT, SAMPLED = trajectory_pb2.TOKEN_ROLE_PROMPT, trajectory_pb2.TOKEN_ROLE_SAMPLED
TOOL = trajectory_pb2.TOKEN_ROLE_TOOL
DIGEST = "sha256:one"


def node(
    ids: Sequence[int],
    role: trajectory_pb2.TokenRole.ValueType = PROMPT,
    *,
    parent: int | None = None,
    versions: Sequence[tuple[int, int, int]] = (),
) -> trajectory_pb2.TokenNode:
    """A node; sampled tokens have the log-probability -id / 10."""
    made = trajectory_pb2.TokenNode(role=role, token_ids=np.array(ids, dtype="<i4").tobytes(), parent=parent)
    if role == SAMPLED:
        made.logprobs = (-np.array(ids, dtype="<f4") / 10).tobytes()
        spans = versions or [(1, 0, len(ids))]
        made.version_spans.extend(trajectory_pb2.VersionSpan(version=v, start=s, end=e) for v, s, e in spans)
    return made


def graph(*nodes: trajectory_pb2.TokenNode) -> trajectory_pb2.TokenGraph:
    return trajectory_pb2.TokenGraph(nodes=nodes, tokenizer_digest=DIGEST)


def two_turns() -> trajectory_pb2.TokenGraph:
    """Prompt, call, tool's answer, answer of which two versions sampled a token each."""
    return graph(
        node([1, 2]),
        node([3, 4], SAMPLED, parent=0),
        node([5], TOOL, parent=1),
        node([6, 7], SAMPLED, parent=2, versions=[(1, 0, 1), (2, 1, 2)]),
        node([9], PROMPT, parent=3),
    )


def rollout(number: int, reward: float, **changes: object) -> trajectory_pb2.Trajectory:
    made = trajectory_pb2.Trajectory(
        task_id="t",
        rollout_id=f"t/{number}",
        reward=reward,
        outcome=trajectory_pb2.OUTCOME_FINISHED,
        token_graphs=[two_turns()],
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def lineage() -> Lineage:
    return Lineage({1: 10, 2: 11})


def judged(*group: trajectory_pb2.Trajectory, size: int = 2) -> object:
    return trainable_group(group, size=size, tokenizer_digest=DIGEST, lineage=lineage())


def test_a_row_holds_exact_tokens_and_ends_with_the_last_trained_one() -> None:
    """Context has no log-probability and no version; what follows the last sampled token teaches nothing."""
    (row,) = rows_of(two_turns())
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert row.loss_mask.tolist() == [0, 0, 1, 1, 0, 1, 1]
    np.testing.assert_allclose(row.logprobs, [0, 0, -0.3, -0.4, 0, -0.6, -0.7], rtol=1e-6)
    assert row.versions.tolist() == [-1, -1, 1, 1, -1, 1, 2]


def test_a_token_of_several_branches_is_trained_in_the_first_leaf_alone() -> None:
    """In other paths it is context."""
    branched = graph(
        node([1]), node([2], SAMPLED, parent=0), node([3], SAMPLED, parent=1), node([4], SAMPLED, parent=1)
    )
    first, second = rows_of(branched)
    assert (first.token_ids.tolist(), first.loss_mask.tolist()) == ([1, 2, 3], [0, 1, 1])
    assert (second.token_ids.tolist(), second.loss_mask.tolist()) == ([1, 2, 4], [0, 0, 1])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (node([1], SAMPLED, parent=5), "does not come before"),
        (trajectory_pb2.TokenNode(role=PROMPT, token_ids=b"123"), "4 bytes"),
        (trajectory_pb2.TokenNode(role=SAMPLED, token_ids=b"1234"), "log-probabilities"),
        (node([1, 2], SAMPLED, versions=[(1, 0, 1)]), "cover 1 of 2"),
        (node([1, 2], SAMPLED, versions=[(1, 1, 2)]), "gap"),
    ],
)
def test_a_graph_that_breaks_the_protocol_is_refused(broken: trajectory_pb2.TokenNode, why: str) -> None:
    """The text says how it does."""
    with pytest.raises(GraphError, match=why):
        rows_of(graph(broken))


def test_advantages_are_rewards_without_their_mean() -> None:
    """Golden: one success in four, not divided by the standard deviation; alike rewards teach nothing."""
    assert centred([1.0, 0.0, 0.0, 0.0]) == [0.75, -0.25, -0.25, -0.25]
    assert centred([1.0, 1.0]) == [0.0, 0.0]


def test_a_group_becomes_tensors_with_an_advantage_for_each_row() -> None:
    """Versions are told as the optimiser steps that made them; padding is on the right and neither read nor trained."""
    short = rollout(1, 0.0)
    short.token_graphs[0].CopyFrom(graph(node([1]), node([2], SAMPLED, parent=0)))
    group = trainable_group([rollout(0, 1.0), short], size=2, tokenizer_digest=DIGEST, lineage=lineage())
    assert (group.rewards, group.advantages, group.oldest_step) == ((1.0, 0.0), (0.5, -0.5), 10)
    tensors = padded(group)
    assert tensors["rewards"].tolist() == [0.5, -0.5]
    assert tensors["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 0, 0, 0, 0, 0]]
    assert tensors["attention_mask"].sum(axis=1).tolist() == [7, 2]
    assert tensors["loss_mask"].sum(axis=1).tolist() == [4, 1]
    assert tensors["versions"].tolist() == [[-1, -1, 10, 10, -1, 10, 11], [-1, 10, -1, -1, -1, -1, -1]]


def test_groups_that_fared_alike_are_left_out_and_the_loss_stays_the_same() -> None:
    """Golden: 50 of 80 tokens are kept; their sum over 80 is 5/8 of their mean over 50."""
    assert informative([[0.5, -0.5], [0.0, 0.0], [0.25, -0.25]], [10, 30, 40]) == ([0, 2], 0.625)
    assert informative([[0.0], [0.0]], [1, 3]) == ([0], 0.25)


def test_an_agent_that_failed_counts_as_zero_but_infrastructure_never_does() -> None:
    """The one is the policy's doing."""
    failed = rollout(1, 0.7, outcome=trajectory_pb2.OUTCOME_AGENT_ERROR)
    assert trainable_group([rollout(0, 1.0), failed], size=2, tokenizer_digest=DIGEST, lineage=lineage()).rewards == (
        1.0,
        0.0,
    )
    for outcome in (trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, trajectory_pb2.OUTCOME_CANCELLED, 99):
        with pytest.raises(Rejected, match="a rollout ended with"):
            judged(rollout(0, 1.0), rollout(1, 0.0, outcome=outcome))


def test_a_group_without_exactly_its_size_is_rejected() -> None:
    """Six rows for a size of four once gave advantages of 1e5."""
    for count in (1, 3):
        with pytest.raises(Rejected, match=f"has {count} rollouts instead of 2"):
            judged(*(rollout(number, 0.0) for number in range(count)))


def test_tokens_that_can_not_be_trained_reject_their_group() -> None:
    """Another tokenizer's, of weights that were given up, or none at all."""
    foreign = rollout(1, 0.0)
    foreign.token_graphs[0].tokenizer_digest = "sha256:two"
    abandoned = rollout(1, 0.0)
    abandoned.token_graphs[0].nodes[1].version_spans[0].version = 7
    silent = rollout(1, 0.0)
    del silent.token_graphs[:]
    for bad, why in ((foreign, "of tokenizer"), (abandoned, "version 7 is none"), (silent, "no sampled tokens")):
        with pytest.raises(Rejected, match=why):
            judged(rollout(0, 1.0), bad)


def test_groups_are_gathered_whole_and_repeats_change_nothing() -> None:
    """Trajectories come at least once, in any order, and may be nobody's."""
    book = GroupBook()
    book.expect("t", 2)
    assert not book.add(trajectory_pb2.Trajectory(task_id="other", rollout_id="other/0"))
    assert book.add(rollout(1, 0.0)) and not book.add(rollout(1, 0.0))
    assert book.take("t") is None
    assert book.add(rollout(0, 1.0))
    taken = book.take("t")
    assert taken is not None and [trajectory.rollout_id for trajectory in taken] == ["t/0", "t/1"]
    assert book.take("t") is None and book.forget("t") == 0


def test_staleness_is_counted_in_optimiser_steps() -> None:
    """Of each sampled token; histograms of several groups add up."""
    steps = lineage().steps_of(rows_of(two_turns())[0])
    assert histogram([steps], now=12) == [0, 1, 3]
    assert added([1], [0, 1, 3]) == [1, 1, 3]


def test_a_checkpoint_remembers_the_latest_versions() -> None:
    """After going back, versions of given-up weights are unknown, and what they sampled is refused."""
    versions = lineage()
    versions.add(5, 12)
    assert versions.recent(2) == {2: 11, 5: 12}
