"""A rollout with a real model goes on after its node died: its tokens stay those that the engine read and sampled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from support.boxes import door, submit, trajectories
from support.first_attempt import First
from support.gateway_door import write_catalogue
from support.proxy_process import Proxy, Relay, publish, running_proxy, running_relay
from support.rescoring import Scorer, path_to, sequences
from support.services import Services
from support.tiny_checkpoints import FOUND, QUESTION
from support.vllm_engine import VllmEngine

from practicum.environments.boxes.game import Boxes
from practicum.node.model import tools_json
from practicum.node.tool_agent import results, said
from practicum.trainer.rows import rows_of
from practicum.v1 import (
    env_gateway_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    message_pb2,
    task_pb2,
    trajectory_pb2,
)

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
MAX_TOKENS = 40
GAME = Boxes((17, 204), 53)
BOX = {"command": "${PYTHON}", "args": ["-m", "support.textual_boxes"], "fork": "support.textual_boxes:main"}
CATALOGUE = {
    "mcpServers": {"box": BOX},
    "environments": {"boxes": {"servers": ["box"], "tools": ["box__open"], "scorer": "exact"}},
}


@pytest.fixture
async def relay(engine: VllmEngine) -> AsyncIterator[Relay]:
    """Sees what goes between proxy and engine."""
    async with running_relay(engine.address) as relay:
        yield relay


@pytest.fixture
async def proxy(relay: Relay, player: Path, weights_root: Path) -> AsyncIterator[Proxy]:
    """A proxy before the engine, which serves what other tests left there."""
    async with running_proxy(relay.address, model=player, root=weights_root) as proxy:
        yield proxy


def question() -> task_pb2.Task:
    """The game that the player knows by heart."""
    return task_pb2.Task(
        id="t",
        instruction=QUESTION,
        environment=task_pb2.EnvironmentSpec(name="boxes", parameters_json=GAME.to_json()),
        agent=task_pb2.AgentSpec(kind="tool_agent", config_json='{"temperature": 0}'),
        scoring=task_pb2.Scoring(scorer="exact", ground_truth=str(GAME.coin)),
        limits=task_pb2.Limits(max_tokens_per_action=MAX_TOKENS),
        retry=task_pb2.RetryPolicy(max_attempts=2),
    )


class FirstTurns:
    """What the first attempt's model says; the agent tells of it or dies before it does."""

    def __init__(self, first: First, proxy: inference_pb2_grpc.InferenceServiceStub) -> None:
        self.first = first
        self.proxy = proxy
        self.messages = [inference_pb2.ChatMessage(role="user", content=QUESTION)]
        request = inference_pb2.InferenceServiceOpenSessionRequest(session_id="t/0", attempt=1, agent_id="agent")
        proxy.OpenSession(request, timeout=30)

    def sample(self) -> inference_pb2.ChatMessage:
        """The model's next turn."""
        request = inference_pb2.ChatRequest(
            session_id="t/0",
            attempt=1,
            messages=self.messages,
            tools_json=tools_json(self.first.tools),
            sampling=inference_pb2.Sampling(max_tokens=MAX_TOKENS, temperature=0),
        )
        *_, last = self.proxy.Chat(request, timeout=60)
        return last.message

    def step(self) -> None:
        """A turn, its call, and all of it told."""
        turn = self.sample()
        action = message_pb2.Action(text=turn.content, tool_calls=turn.tool_calls)
        self.first.recorder.act("agent", action, model_seconds=0.1, tokens=1)
        observation = self.first.make(turn.tool_calls[0])
        self.first.recorder.observe("box__open", observation, tool_seconds=0.1)
        self.messages += [said(action), *results([observation])]


def played(services: Services, address: str, folder: Path) -> trajectory_pb2.Trajectory:
    """The first attempt makes a step, samples a turn of which nobody hears, and dies; a real node takes over."""
    executor = services.executor()
    gateway = services.start("env_gateway", "--catalogue", write_catalogue(folder, CATALOGUE))
    with (
        door(executor.address) as stub,
        grpc.insecure_channel(gateway.address) as to_gateway,
        grpc.insecure_channel(address) as to_proxy,
    ):
        submit(stub, [question()])
        first = First(executor, env_gateway_pb2_grpc.EnvGatewayServiceStub(to_gateway), "tool_agent")
        turns = FirstTurns(first, inference_pb2_grpc.InferenceServiceStub(to_proxy))
        turns.step()
        turns.sample()
        first.die()
        services.node("b", executor, gateway, "--inference", address)
        (trajectory,) = trajectories(stub, 1)
    return trajectory


async def test_a_resumed_conversation_keeps_every_token_once(
    services: Services, proxy: Proxy, relay: Relay, player: Path, tmp_path: Path
) -> None:
    """Those of before the break as they were sampled then, and those of after it; none that nobody acted on."""
    version = await publish(proxy, "player")
    trajectory = await asyncio.to_thread(played, services, proxy.address, tmp_path)
    assert (trajectory.attempt, trajectory.node_id, trajectory.reward) == (2, "b", 1.0), trajectory.error
    assert [[o.text for o in step.observations] for step in trajectory.steps] == [[FOUND[0]], [FOUND[1]], []]
    (graph,) = trajectory.token_graphs
    first, unheard, *rest = relay.generated
    assert recorded(graph) == [first, *rest] and len(rest) == 2
    assert unheard[1] == rest[0][1], "the same turn was sampled again, and only what was acted on is kept"
    sampled = sum(len(ids) for _, ids in recorded(graph))
    assert sum(int(row.loss_mask.sum()) for row in rows_of(graph)) == sampled
    assert (trajectory.min_policy_version, trajectory.max_policy_version) == (version, version)
    scorer = Scorer(player)
    for path in sequences(graph):
        scored = scorer.logprobs(player, path.ids)
        errors = [abs(a - b) for a, b, s in zip(scored, path.logprobs, path.sampled, strict=True) if s]
        assert max(errors) <= TOLERANCE


def recorded(graph: trajectory_pb2.TokenGraph) -> list[tuple[list[int], list[int]]]:
    """What was read, and what was sampled then, for each turn."""
    found = []
    for index, node in enumerate(graph.nodes):
        if node.role == trajectory_pb2.TOKEN_ROLE_SAMPLED:
            *read, last = [np.frombuffer(graph.nodes[i].token_ids, "<i4").tolist() for i in path_to(graph, index)]
            found.append(([token for part in read for token in part], last))
    return found
