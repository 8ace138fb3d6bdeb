"""The broker of PrimeIntellect's verifiers: `EnvServerPool`, which routes runs to the least busy of its workers.

    python -m rivals.verifiers_broker theirs    # their client, their worker's loop
    python -m rivals.verifiers_broker bare      # the same broker and client, workers of bare sockets

The broker is theirs, unchanged, with two workers from the start. Their client sends runs as it does (its request
without the typing of a whole episode, which costs more). A worker is their `EnvServer` whose environment does
nothing, as no program and no model is to be measured. `bare` shows what the broker itself could carry if their
workers cost nothing. What it does not do: anything durable, leases, attempts, acks, priorities; what is in flight is
lost with the broker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgpack
import zmq
import zmq.asyncio
from load.closed_loop import ClosedLoop
from load.processes import READY, children, cpu_seconds
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.serve import EnvClient, EnvServer, RunRequest, RunResponse, pool
from verifiers.v1.types import SamplingConfig

from rivals.arm import INSTRUCTION, NODES, RESULT, serve, unused_port

HEAD = {"result": RESULT}


class Verifiers:
    """The broker as an arm."""

    loop: ClosedLoop

    def __init__(self, client: EnvClient, pid: int) -> None:
        self._client = client
        self._pid = pid
        self._runs: set[asyncio.Task[None]] = set()

    def submit(self, ids: list[str]) -> None:
        """One request for each: the protocol has no other way."""
        for name in ids:
            run = asyncio.create_task(self._run(name))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def cpu(self) -> float:
        """The broker's."""
        return cpu_seconds(self._pid)

    async def _run(self, name: str) -> None:
        data = {"instruction": INSTRUCTION}
        request = RunRequest(task_data=data, client=EvalClientConfig(), model="m", sampling=SamplingConfig())
        try:
            response = await self._client._request(request, RunResponse)
        except RuntimeError as error:
            self.loop.failed(error)
            return
        if response.head == HEAD:
            self.loop.done([name])


class NoEnvironment:
    """An environment that is up at once."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Nothing to start."""
        yield


class EmptyServer(EnvServer):
    """Their worker, whose runs end at once."""

    def __init__(self, address: str) -> None:
        self.address, self.taskset_id, self.env = address, "empty", NoEnvironment()
        self._running: dict[str, asyncio.Task[None]] = {}
        self.ctx = zmq.asyncio.Context()
        self.frontend = self.ctx.socket(zmq.ROUTER)
        self.frontend.bind(address)

    async def _run(self, req: RunRequest, client_id: bytes, request_id: bytes) -> RunResponse:
        return RunResponse(head=HEAD)


def their_worker(*, address: str, death_pipe: Any, **_: Any) -> None:
    """Their loop. Ends with the broker."""
    threading.Thread(target=exit_with, args=[death_pipe], daemon=True).start()
    asyncio.run(EmptyServer(address).run())


def bare_worker(*, address: str, death_pipe: Any, **_: Any) -> None:
    """Answers at once whatever comes. Ends with the broker."""
    threading.Thread(target=exit_with, args=[death_pipe], daemon=True).start()
    server = zmq.Context.instance().socket(zmq.ROUTER)
    server.bind(address)
    while True:
        client, request, _, payload = server.recv_multipart()
        msgpack.unpackb(payload)
        answer = {"success": True, "error": None, "head": HEAD, "traces": []}
        server.send_multipart([client, request, b"reply", msgpack.packb(answer)])


def exit_with(pipe: Any) -> None:
    """Ends this process when the other end of a pipe is gone."""
    try:
        pipe.recv()
    except EOFError:
        os._exit(0)


WORKERS = {"theirs": their_worker, "bare": bare_worker}


async def main(worker: str) -> None:
    """Starts the broker, serves."""
    address = f"tcp://127.0.0.1:{unused_port()}"
    with children([("-m", "rivals.verifiers_broker", worker, address)]) as [broker]:
        client = EnvClient(address)
        await client.wait_for_server_startup()
        arm = Verifiers(client, broker.pid)
        await serve(arm)
        await client.close()
        broker.terminate()  # So that it removes its folder in /tmp.
        await asyncio.to_thread(broker.wait, 20)


def run_broker(worker: str, address: str) -> None:
    """Their broker, with our workers where it starts its own."""
    pool.serve_env = WORKERS[worker]
    pool._arm_teardown()
    broker = pool.EnvServerPool({}, NODES, address, elastic=False)
    print(READY, flush=True)
    with suppress(KeyboardInterrupt):  # What they make of SIGTERM.
        asyncio.run(broker.run())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_broker(*sys.argv[1:])
    else:
        asyncio.run(main(sys.argv[1]))
