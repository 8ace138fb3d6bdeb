"""Weights change while a real vLLM samples: each token scores under its own version, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode
from safetensors.torch import load_file, save_file
from support.proxy_process import (
    Proxy,
    close_session,
    failure_of,
    open_session,
    publish,
    running_proxy,
)
from support.rescoring import Scorer, sequences
from support.tiny_checkpoints import FILE, make_talker
from support.vllm_engine import VllmEngine

from practicum.inference_proxy.model import load_model
from practicum.v1 import inference_pb2, trajectory_pb2

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
APART = 0.1
TALKERS = 3
TALKS = 6
TALK_TOKENS = 500


@pytest.fixture(scope="module")
def talkers(player: Path, weights_root: Path) -> list[str]:
    """Checkpoints below the root, far apart from each other."""
    end_ids = tuple(load_model(player).end_ids)
    names = [f"talker-{seed}" for seed in range(TALKERS)]
    for seed, name in enumerate(names):
        make_talker(player, weights_root / name, seed=seed, end_ids=end_ids)
    return names


@pytest.fixture
async def proxy(engine: VllmEngine, player: Path, weights_root: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        yield proxy


class Talk:
    """A long generation under way."""

    def __init__(self, proxy: Proxy, session_id: str, *, tokens: int = TALK_TOKENS) -> None:
        self.session_id = session_id
        self.responses: list[inference_pb2.GenerateResponse] = []
        self._request = inference_pb2.GenerateRequest(
            session_id=session_id,
            attempt=1,
            prompt_token_ids=np.array([3, 20, 40, 60, 80], "<i4").tobytes(),
            sampling=inference_pb2.Sampling(max_tokens=tokens),
        )
        self._proxy = proxy
        self._progress = asyncio.Condition()
        self.done = asyncio.create_task(self._run())

    @property
    def tokens(self) -> int:
        """How many came so far."""
        return sum(len(response.token_ids) // 4 for response in self.responses)

    async def reaches(self, tokens: int) -> None:
        """Waits until so many came."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.tokens >= tokens)

    async def _run(self) -> None:
        await open_session(self._proxy, self.session_id)
        async for response in self._proxy.stub.Generate(self._request):
            async with self._progress:
                self.responses.append(response)
                self._progress.notify_all()


async def test_versions_rise_within_a_generation_and_each_token_scores_under_its_own(
    proxy: Proxy, player: Path, weights_root: Path, talkers: list[str]
) -> None:
    """Updates and a refusal in the middle of six generations: exact log-probabilities, nothing lost."""
    served = {await publish(proxy, talkers[0]): talkers[0]}
    talks = [Talk(proxy, f"talk-{number}") for number in range(TALKS)]
    await talks[0].reaches(100)
    served[await publish(proxy, talkers[1])] = talkers[1]
    await talks[0].reaches(200)
    code, reason, _ = await failure_of(publish(proxy, "nowhere"))
    assert (code, reason) == (StatusCode.INVALID_ARGUMENT, "CHECKPOINT_REFUSED")
    await talks[0].reaches(300)
    served[await publish(proxy, talkers[2])] = talkers[2]
    await asyncio.gather(*(talk.done for talk in talks))

    scorer = Scorer(player)
    for talk in talks:
        graph = await close_session(proxy, talk.session_id)
        assert_nothing_lost(talk, graph)
        assert_rescored(graph, scorer, {version: weights_root / name for version, name in served.items()})


def assert_nothing_lost(talk: Talk, graph: trajectory_pb2.TokenGraph) -> None:
    """What was streamed is what was recorded, to its full length, under versions that rise."""
    sampled = graph.nodes[-1]
    assert b"".join(response.token_ids for response in talk.responses) == sampled.token_ids
    assert b"".join(response.logprobs for response in talk.responses) == sampled.logprobs
    assert (talk.tokens, talk.responses[-1].finish_reason) == (TALK_TOKENS, "length")
    versions = [span.version for span in sampled.version_spans]
    assert versions == sorted(set(versions))
    assert len(versions) == TALKERS


def assert_rescored(graph: trajectory_pb2.TokenGraph, scorer: Scorer, served: dict[int, Path]) -> None:
    """Each token within 1e-4 under its own version, and on average more than 0.1 nat off under any other."""
    [path] = sequences(graph)
    recorded, versions = np.array(path.logprobs), np.array(path.versions)
    scored = {version: np.array(scorer.logprobs(folder, path.ids)) for version, folder in served.items()}
    for version in served:
        own = versions == version
        assert own.any()
        assert np.abs(scored[version] - recorded)[own].max() <= TOLERANCE
        for other in served.keys() - {version}:
            assert np.abs(scored[other] - recorded)[own].mean() > APART


async def test_other_pause_modes_wait_for_generations_or_end_them(proxy: Proxy, talkers: list[str]) -> None:
    """`wait` changes no generation under way; `abort` ends it with what it had."""
    first = await publish(proxy, talkers[0])
    waited, later = Talk(proxy, "waited", tokens=120), None
    await waited.reaches(16)
    update = asyncio.create_task(publish(proxy, talkers[1], pause_mode=inference_pb2.PAUSE_MODE_WAIT))
    assert await update == first + 1
    await waited.done
    later = Talk(proxy, "aborted")
    await later.reaches(16)
    await publish(proxy, talkers[2], pause_mode=inference_pb2.PAUSE_MODE_ABORT)
    await later.done
    assert (waited.tokens, [s.version for s in waited.responses[-1].version_spans]) == (120, [first])
    assert later.responses[-1].finish_reason == "abort"
    assert [s.version for s in later.responses[-1].version_spans] == [first + 1]
    assert 16 <= later.tokens < TALK_TOKENS


def broken(weights_root: Path, name: str, change: Any) -> str:
    """A checkpoint whose tensors were changed."""
    folder = weights_root / f"broken-{name}"
    folder.mkdir()
    save_file(change(load_file(weights_root / "talker-0" / FILE)), folder / FILE)
    return folder.name


async def test_bad_checkpoints_are_refused_with_what_is_wrong_and_serving_goes_on(
    proxy: Proxy, weights_root: Path, talkers: list[str]
) -> None:
    """Each kind names its reason, and the version and its weights stay."""
    version, head = await publish(proxy, talkers[0]), "lm_head.weight"
    before = await scored_by_engine(proxy)
    (weights_root / "broken-cut").mkdir()
    whole = (weights_root / talkers[1] / FILE).read_bytes()
    (weights_root / "broken-cut" / FILE).write_bytes(whole[: len(whole) // 2])
    (weights_root / "broken-link").symlink_to("/usr")
    refused = {
        "nowhere": "no *.safetensors",
        "broken-cut": "can't be read",
        broken(weights_root, "missing", lambda t: {k: v for k, v in t.items() if k != head}): f"{head} is missing",
        broken(weights_root, "unknown", lambda t: {**t, "more": t[head].clone()}): "more is unknown",
        broken(weights_root, "shape", lambda t: {**t, head: t[head][:500].clone()}): "[500, 192] F32 instead of",
        broken(weights_root, "type", lambda t: {**t, head: t[head].half()}): "F16 instead of [512, 192] F32",
        broken(weights_root, "nan", lambda t: {**t, head: t[head] * float("nan")}): "not finite",
    }
    for path, wrong in refused.items():
        code, reason, text = await failure_of(publish(proxy, path))
        assert (code, reason) == (StatusCode.INVALID_ARGUMENT, "CHECKPOINT_REFUSED")
        assert wrong in text
        assert "/tmp" not in text
    for path in ("", ".", "..", "../weights", "/etc", "broken-link"):
        code, reason, _ = await failure_of(publish(proxy, path))
        assert (code, reason) == (StatusCode.INVALID_ARGUMENT, "PATH_OUTSIDE_ROOT")
    assert (await proxy.stub.GetPolicyVersion(inference_pb2.GetPolicyVersionRequest())).version == version
    assert await scored_by_engine(proxy) == before


async def scored_by_engine(proxy: Proxy) -> bytes:
    """A fingerprint of the weights that serve."""
    request = inference_pb2.GenerateRequest(
        prompt_token_ids=np.arange(50, dtype="<i4").tobytes(),
        sampling=inference_pb2.Sampling(max_tokens=1),
        prompt_logprobs=True,
    )
    [response] = [response async for response in proxy.stub.Generate(request)]
    return response.prompt_logprobs


async def test_versions_only_rise_and_a_repeat_confirms(proxy: Proxy, talkers: list[str]) -> None:
    """The same version and path again is no new update; anything else must be newer."""
    version = await publish(proxy, talkers[0])
    request = inference_pb2.UpdateWeightsRequest(version=version, path=talkers[0])
    repeated = await proxy.stub.UpdateWeights(request)
    assert (repeated.version, repeated.paused.nanos, repeated.confirmed_engines) == (version, 0, 1)
    for older, path in ((version, talkers[1]), (version - 1, talkers[0])):
        request = inference_pb2.UpdateWeightsRequest(version=older, path=path)
        code, reason, _ = await failure_of(proxy.stub.UpdateWeights(request))
        assert (code, reason) == (StatusCode.FAILED_PRECONDITION, "VERSION_NOT_NEWER")
    code, reason, _ = await failure_of(proxy.stub.UpdateWeights(inference_pb2.UpdateWeightsRequest(path="x")))
    assert (code, reason) == (StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_watchers_see_each_version(proxy: Proxy, talkers: list[str]) -> None:
    """The version now, then those that follow."""
    watch = proxy.stub.WatchPolicyVersion(inference_pb2.WatchPolicyVersionRequest())
    first = (await watch.read()).version
    await publish(proxy, talkers[0])
    assert (await watch.read()).version == first + 1
    watch.cancel()


async def test_an_update_that_takes_too_long_leaves_the_old_weights_serving(proxy: Proxy, talkers: list[str]) -> None:
    """Waiting for a long generation ends with the time that the caller gave; the generation goes on."""
    version = await publish(proxy, talkers[0])
    talk = Talk(proxy, "slow")
    await talk.reaches(16)
    late = publish(proxy, talkers[1], pause_mode=inference_pb2.PAUSE_MODE_WAIT, timeout=Duration(nanos=100_000_000))
    code, reason, _ = await failure_of(late)
    assert (code, reason) == (StatusCode.DEADLINE_EXCEEDED, "UPDATE_TOO_SLOW")
    await talk.done
    assert [(span.version, span.end) for span in talk.responses[-1].version_spans] == [(version, TALK_TOKENS)]
