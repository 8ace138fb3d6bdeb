"""Agent Lightning 1's server: rollouts are created, patched and read over HTTP, and kept in its memory.

The server is theirs as `agl-server` starts it, and so is the HTTP client. Its one controller is ours: theirs starts
a process for each rollout and looks every 10 s; ours ends them at once and looks again at once (every 5 ms when
there was nothing). The caller reads what is complete in pages, instead of asking for each rollout every second as
theirs does. For each rollout the server sees: its creation (many in one call), running, the result as an event,
succeeded, the event read, and its deletion. What it does not do: anything durable, leases, attempts after a failure,
acks, priorities.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from urllib.error import URLError

from agentlightning.client import AgentLightningAsyncClient
from httpx import Limits
from load.closed_loop import ClosedLoop
from load.processes import READY, children, cpu_seconds, programs

from rivals.arm import INSTRUCTION, RESULT, serve, unused_port

PAUSE_SECONDS = 0.005
START_SECONDS = 60
IN_ONE_LOOK = 256
LIMITS = Limits(max_connections=32, max_keepalive_connections=32)


class AgentLightning:
    """The server as an arm."""

    loop: ClosedLoop | None = None

    def __init__(self, api: AgentLightningAsyncClient, pid: int, controller: subprocess.Popen[bytes]) -> None:
        self._api = api
        self._pid = pid
        self._calls: set[asyncio.Task[None]] = set()

    def submit(self, ids: list[str]) -> None:
        """One call for all."""
        self._begin(self._create(ids))

    def cpu(self) -> float:
        """The server's."""
        return cpu_seconds(self._pid)

    def _begin(self, call: object) -> None:
        task = asyncio.ensure_future(call)  # type: ignore[call-overload]
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if self.loop is not None and not task.cancelled() and (error := task.exception()) is not None:
            self.loop.failed(error)

    async def _create(self, ids: list[str]) -> None:
        created = [{"rollout_id": name, "input": {"instruction": INSTRUCTION}} for name in ids]
        (await self._api.post("/api/rollouts", json=created)).raise_for_status()

    async def watch(self) -> None:
        """Reads page after page of what is complete."""
        after = 0
        while True:
            page = (await self._api.get("/api/rollouts/terminal", params={"after": after})).json()
            after = page["next_after"]
            for item in page["items"]:
                self._begin(self._collect(item["rollout_id"]))
            if not page["items"]:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _collect(self, name: str) -> None:
        events = (await self._api.get(f"/api/rollouts/{name}/events")).json()
        if events[0]["data"]["result"] != RESULT or self.loop is None:
            raise RuntimeError(f"{name} came back without its result")
        self.loop.done([name])
        await self._api.delete(f"/api/rollouts/{name}")


async def main() -> None:
    """Starts the server and the controller, serves."""
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    command = ("-m", "agentlightning.server", "host=127.0.0.1", f"port={port}")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # In a folder of its own: it writes logs where it stands.
    with tempfile.TemporaryDirectory() as folder, programs([command], cwd=folder, **quiet) as [server]:
        wait_healthy(url, server)
        with children([("-m", "rivals.agent_lightning", url)]) as [controller]:
            async with AgentLightningAsyncClient(base_url=url, limits=LIMITS, timeout=60) as api:
                arm = AgentLightning(api, server.pid, controller)
                watching = asyncio.create_task(arm.watch())
                await serve(arm)
                watching.cancel()


def wait_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=1).close()
            return
        except URLError:
            time.sleep(0.05)
    raise RuntimeError("Agent Lightning's server does not answer")


async def control(url: str) -> None:
    """The controller: ends at once what is queued."""
    async with AgentLightningAsyncClient(base_url=url, limits=LIMITS, timeout=60) as api:
        print(READY, flush=True)
        while True:
            query = {"state_in": "queuing", "limit": IN_ONE_LOOK}
            queued = (await api.get("/api/rollouts", params=query)).json()
            await asyncio.gather(*(run(api, rollout["rollout_id"]) for rollout in queued))
            if not queued:
                await asyncio.sleep(PAUSE_SECONDS)


async def run(api: AgentLightningAsyncClient, name: str) -> None:
    """One empty rollout."""
    path = f"/api/rollouts/{name}"
    for call, data in (
        (api.patch, (path, {"status": {"state": "running", "last_attempt_id": "0"}})),
        (api.post, (f"{path}/attempt/0/events", {"event_type": "reward", "data": {"value": 1.0, "result": RESULT}})),
        (api.patch, (path, {"status": {"state": "succeeded"}})),
    ):
        (await call(data[0], json=data[1])).raise_for_status()


if __name__ == "__main__":
    os.environ.pop("HTTP_PROXY", None)
    asyncio.run(control(sys.argv[1]) if len(sys.argv) > 1 else main())
