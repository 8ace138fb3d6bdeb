"""Versions, paths and sampling: pure rules of the door."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.policy import Policy
from practicum.inference_proxy.publisher import confine
from practicum.inference_proxy.sampling import sampling_params
from practicum.v1 import inference_pb2


async def test_watchers_get_the_version_now_and_each_newer_one_until_the_end() -> None:
    """A slow watcher skips to the newest; closing ends it."""
    policy = Policy()
    seen: list[int] = []

    async def watch() -> None:
        async for version in policy.watch():
            seen.append(version)  # noqa: PERF401 — it is looked at before the stream ends

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    policy.publish(1, "a")
    policy.publish(2, "b")
    for _ in range(3):
        await asyncio.sleep(0)
    policy.close()
    await watcher
    assert seen == [0, 2]


def test_paths_below_the_root_are_kept_relative(tmp_path: Path) -> None:
    """However they are written."""
    root = tmp_path.resolve()
    assert confine(root, "a/b") == confine(root, "a/./x/../b") == confine(root, str(root / "a" / "b")) == "a/b"


@pytest.mark.parametrize("path", ["", ".", "..", "a/..", "../b", "/etc", "out/b", "a\0b"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    """Links are followed first."""
    (tmp_path / "out").symlink_to("/usr")
    with pytest.raises(InvalidArgument, match="not below the weights root"):
        confine(tmp_path.resolve(), path)


def test_defaults_are_those_of_the_protocol() -> None:
    """Temperature 1, 256 tokens, no cuts; the engine stops at the model's end tokens."""
    params = sampling_params(inference_pb2.Sampling(), room=1000, end_ids=[2])
    assert (params["temperature"], params["max_tokens"], params["stop_token_ids"]) == (1.0, 256, [2])
    assert params.keys().isdisjoint({"top_p", "top_k", "seed", "stop"})


def test_a_set_zero_is_not_a_default() -> None:
    """Greedy is 0, and seed 0 is a seed."""
    params = sampling_params(inference_pb2.Sampling(temperature=0, seed=0), room=8, end_ids=[])
    assert (params["temperature"], params["seed"], params["max_tokens"]) == (0.0, 0, 8)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -2},
        {"max_tokens": -1},
        {"stop": [""]},
    ],
)
def test_settings_out_of_range_are_named(sampling: dict[str, object]) -> None:
    """By their field."""
    with pytest.raises(InvalidArgument, match=f"sampling.{next(iter(sampling))}"):
        sampling_params(inference_pb2.Sampling(**sampling), room=8, end_ids=[])  # type: ignore[arg-type]
