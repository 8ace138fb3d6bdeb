"""Measures the environment gateway: what a session and a call cost, and whether anything is left behind.

    python benchmarks/env_gateway.py            # about a minute; exits with 1 when a bar is missed

CPU is that of the gateway, its launcher and the servers together, as the kernel counts it. Run it on a quiet machine:
others who share caches and hyper-threads double it. Ratios compare figures of the same run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from figures import Figure, report
from grpc import aio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from practicum.common.channels import connect
from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import env_gateway_pb2_grpc, message_pb2, task_pb2

COMMAND = {"command": sys.executable, "args": ["-m", "practicum.environments.boxes"]}
# A server as environments' authors write it, on the SDK: forked, and as a new process.
SDK_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("hello")


@server.tool()
def hello(name: str) -> str:
    return f"hello {name}"


def main() -> None:
    server.run("stdio")


if __name__ == "__main__":
    main()
"""
GAME = json.dumps({"chain": [17, 42], "coin": 33})
OPEN_BOX = json.dumps({"id": 17})
# As many rollouts as the quickstart has in flight, each with two calls, which is its average.
CONCURRENT, CALLS = 64, 2


class Bench:
    """A gateway process and calls on it."""

    def __init__(
        self, process: psutil.Process, stub: env_gateway_pb2_grpc.EnvGatewayServiceAsyncStub, folder: str = ""
    ) -> None:
        """`folder`: where its sessions have theirs."""
        self.process = process
        self.stub = stub
        self.folder = folder

    def cpu_ms(self) -> float:
        """CPU of the gateway, its launcher, and all servers that ended."""
        return sum(cpu_ms(process) for process in (self.process, *self.process.children()))

    async def open(self, session: str, environment: str = "box") -> None:
        """Opens a session."""
        spec = task_pb2.EnvironmentSpec(name=environment, parameters_json=GAME)
        await self.stub.OpenSession(pb.OpenSessionRequest(session_id=session, attempt=1, environment=spec))

    async def call(self, session: str, number: int) -> str:
        """Calls the tool; what it said."""
        call = message_pb2.ToolCall(call_id=str(number), name="box__open", arguments_json=OPEN_BOX)
        text = ""
        async for event in self.stub.CallTool(pb.CallToolRequest(session_id=session, attempt=1, call=call)):
            text = event.result.text
        return text

    async def close(self, session: str) -> None:
        """Closes a session."""
        await self.stub.CloseSession(pb.CloseSessionRequest(session_id=session, attempt=1))

    async def episode(self, session: str) -> None:
        """All that a rollout does."""
        await self.open(session)
        for number in range(CALLS):
            assert await self.call(session, number) == "box 42"
        scoring = task_pb2.Scoring(scorer="exact", ground_truth="33")
        await self.stub.Score(pb.ScoreRequest(session_id=session, attempt=1, answer="33", scoring=scoring))
        await self.close(session)


def cpu_ms(process: psutil.Process) -> float:
    """CPU of a process and the children that it reaped."""
    return 1000 * sum(process.cpu_times()[:4])


async def at_once(limit: int, work: Callable[[str], Awaitable[None]], names: Iterable[str]) -> None:
    """Runs work for each name, so many at a time."""
    free = asyncio.Semaphore(limit)

    async def one(name: str) -> None:
        async with free:
            await work(name)

    await asyncio.gather(*map(one, names))


async def sessions(bench: Bench, count: int = 640) -> list[Figure]:
    """Whole episodes, as many at once as the quickstart has."""
    await at_once(CONCURRENT, bench.episode, (f"warm-{i}" for i in range(CONCURRENT)))
    cpu, started = bench.cpu_ms(), time.perf_counter()
    await at_once(CONCURRENT, bench.episode, (f"episode-{i}" for i in range(count)))
    per_session = (bench.cpu_ms() - cpu) / count
    rate = count / (time.perf_counter() - started)
    return [
        Figure(f"CPU of a forked session: open, {CALLS} calls, score, close", per_session, " ms", at_most=10),
        Figure(f"forked sessions, {CONCURRENT} at once", rate, " a second", at_least=40),
    ]


async def calls(bench: Bench, count: int = 2000) -> list[Figure]:
    """One call after the other: through the gateway, straight to the same server, and to a bare gRPC server."""
    await bench.open("calls")
    cpu = cpu_ms(bench.process)
    for number in range(count):
        await bench.call("calls", number)
    ours = (cpu_ms(bench.process) - cpu) / count
    await bench.close("calls")
    direct, bare = await direct_call_ms(count), await bare_call_ms(count)
    what = f"CPU of the gateway a call (MCP client alone {direct:.2f} ms, gRPC alone {bare:.2f} ms)"
    return [Figure(what, ours, " ms", at_most=2 * (direct + bare))]


async def bare_call_ms(count: int) -> float:
    """CPU of a gRPC server that answers CallTool with two events and does nothing else."""
    command = [sys.executable, __file__, "--bare"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        async with connect(address) as channel:
            bench = Bench(psutil.Process(process.pid), env_gateway_pb2_grpc.EnvGatewayServiceStub(channel))
            await bench.call("warm", 0)
            cpu = cpu_ms(bench.process)
            for number in range(count):
                await bench.call("bare", number)
            return (cpu_ms(bench.process) - cpu) / count
    finally:
        process.kill()
        await process.wait()


class BareService(env_gateway_pb2_grpc.EnvGatewayServiceServicer):
    """Answers at once."""

    async def CallTool(self, request: pb.CallToolRequest, context: object) -> AsyncIterator[pb.CallToolResponse]:
        """See the .proto."""
        yield pb.CallToolResponse(accepted=pb.CallAccepted())
        yield pb.CallToolResponse(result=message_pb2.Observation(call_id=request.call.call_id, text="box 42"))


async def serve_bare() -> int:
    """Serves it until killed."""
    server = aio.server()
    env_gateway_pb2_grpc.add_EnvGatewayServiceServicer_to_server(BareService(), server)  # type: ignore[abstract]
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()
    return 0


async def direct_call_ms(count: int) -> float:
    """CPU of the MCP SDK's own client per call, over stdio."""
    environment = {"PRACTICUM_ENVIRONMENT_PARAMETERS": GAME}
    server = StdioServerParameters(command=COMMAND["command"], args=COMMAND["args"], env=environment)
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        before = time.process_time()
        for _ in range(count):
            await session.call_tool("open", {"id": 17})
        return 1000 * (time.process_time() - before) / count


async def opening(bench: Bench, count: int = 7) -> list[Figure]:
    """The time until a session is ready: a server on the SDK forked, and the same as a new process."""

    async def median_ms(environment: str) -> float:
        times = []
        for number in range(count):
            started = time.perf_counter()
            await bench.open(f"{environment}-{number}", environment)
            times.append(1000 * (time.perf_counter() - started))
            await bench.close(f"{environment}-{number}")
        return statistics.median(times)

    forked, fresh = await median_ms("forked"), await median_ms("fresh")
    return [
        Figure(
            f"a fork opens faster ({forked:.1f} ms) than a new process ({fresh:.0f} ms)",
            fresh / forked,
            " times",
            at_least=15,
        )
    ]


async def many(bench: Bench, count: int = 200) -> list[Figure]:
    """Sessions that live at once."""
    names = [f"live-{i}" for i in range(count)]
    await at_once(CONCURRENT, bench.open, names)
    texts = await asyncio.gather(*(bench.call(name, 0) for name in names))
    (launcher,) = bench.process.children()
    servers = launcher.children()
    memory = statistics.mean(server.memory_full_info().uss for server in servers) / 2**20
    await at_once(CONCURRENT, bench.close, names)
    return [
        Figure("sessions alive at once, each answering", texts.count("box 42"), at_least=count),
        Figure("memory of its own of a forked server", memory, " MiB", at_most=10),
    ]


async def leftovers(bench: Bench, count: int = 1000) -> list[Figure]:
    """Open, call, and close or kill -9 the server: what is left."""
    (launcher,) = bench.process.children()

    async def cycle(number: int) -> None:
        await bench.open(f"cycle-{number}")
        await bench.call(f"cycle-{number}", 0)
        if number % 2:
            for server in launcher.children():
                server.send_signal(signal.SIGKILL)
        await bench.close(f"cycle-{number}")

    for number in range(count):
        await cycle(number)
    folders = session_folders(bench.folder)
    return [
        Figure(f"processes left after {count} cycles, half killed", len(launcher.children(recursive=True)), at_most=0),
        Figure("folders left", folders, at_most=0),
    ]


def session_folders(folder: str) -> int:
    """How many sessions' folders there are."""
    return len(list(Path(folder).glob("practicum-gateway-*/session-*")))


def game(folder: Path) -> dict[str, object]:
    """The bundled game, forked."""
    return {"box": COMMAND | {"fork": "practicum.environments.boxes.server:main"}}


def on_the_sdk(folder: Path) -> dict[str, object]:
    """The SDK's server, forked and not. Apart from the game, whose forks would carry the SDK's memory along."""
    server = folder / "hello_server.py"
    server.write_text(SDK_SERVER)
    fresh = {"command": sys.executable, "args": [str(server)]}
    return {"forked": fresh | {"fork": "hello_server:main"}, "fresh": fresh}


@asynccontextmanager
async def gateway(servers: Callable[[Path], dict[str, object]]) -> AsyncIterator[Bench]:
    """A gateway process on a free port, with a temporary folder of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Path(folder) / "catalogue.json"
        catalogue.write_text(json.dumps({"mcpServers": servers(Path(folder))}))
        command = [sys.executable, "-m", "practicum.env_gateway", "--address", address, "--catalogue", str(catalogue)]
        command += ["--exit-with-parent", str(os.getpid())]
        quiet = asyncio.subprocess.DEVNULL
        environment = os.environ | {"TMPDIR": folder, "PYTHONPATH": folder}
        process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet, env=environment)
        try:
            async with connect(address) as channel:
                await asyncio.wait_for(channel.channel_ready(), 60)
                yield Bench(psutil.Process(process.pid), env_gateway_pb2_grpc.EnvGatewayServiceStub(channel), folder)
        finally:
            process.terminate()
            await process.wait()


async def main() -> int:
    """Measures all; the exit status."""
    figures: list[Figure] = []
    for servers, measures in ((game, (sessions, calls, many, leftovers)), (on_the_sdk, (opening,))):
        async with gateway(servers) as bench:
            for measure in measures:
                figures += await measure(bench)
    method = "CPU of the gateway, its launcher and the servers together, as the kernel counts it; medians for latencies"
    return report("environment gateway", figures, method=method)


if __name__ == "__main__":
    sys.exit(asyncio.run(serve_bare() if "--bare" in sys.argv else main()))
