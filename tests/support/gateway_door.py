"""How tests talk to a gateway."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support.services import Service

from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import env_gateway_pb2_grpc, message_pb2, task_pb2

ROUGH = {"command": "${PYTHON}", "args": ["-m", "support.rough_server"], "fork": "support.rough_server:main"}

NUMBERS = itertools.count()


def write_catalogue(folder: Path, catalogue: Any) -> str:
    """A catalogue's path."""
    path = folder / "catalogue.json"
    path.write_text(json.dumps(catalogue))
    return str(path)


class Door:
    """One gateway's calls, with less to write."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._number = next(NUMBERS)
        self._opened: dict[str, int] = {}
        self.stub = env_gateway_pb2_grpc.EnvGatewayServiceStub(channel)

    def id(self, session: str) -> str:
        """The full id: tests that share a gateway share no session."""
        return f"{session}@{self._number}" if session else ""

    def open(
        self, session: str, environment: str, *, attempt: int = 1, resume: bool = False, **spec: Any
    ) -> pb.OpenSessionResponse:
        """Opens a session. `start`: how the rough server begins."""
        if "start" in spec:
            spec["parameters_json"] = json.dumps({"start": spec.pop("start")})
        self._opened[session] = max(attempt, self._opened.get(session, 0))
        request = pb.OpenSessionRequest(
            session_id=self.id(session),
            attempt=attempt,
            resume=resume,
            environment=task_pb2.EnvironmentSpec(name=environment, **spec),
        )
        return self.stub.OpenSession(request, timeout=60)

    def start_call(
        self,
        session: str,
        tool: str,
        *,
        call_id: str = "c",
        attempt: int = 1,
        timeout: float | None = None,
        **arguments: Any,
    ) -> Any:
        """Starts a call; yields its events."""
        call = message_pb2.ToolCall(call_id=call_id, name=tool, arguments_json=json.dumps(arguments))
        limit = None if timeout is None else Duration(seconds=int(timeout), nanos=int(timeout % 1 * 1e9))
        request = pb.CallToolRequest(session_id=self.id(session), attempt=attempt, call=call, timeout=limit)
        return self.stub.CallTool(request, timeout=60)

    def call(self, session: str, tool: str, **options: Any) -> message_pb2.Observation:
        """Calls a tool; its result."""
        *_, last = self.start_call(session, tool, **options)
        return last.result

    def close(self, session: str, attempt: int = 1) -> None:
        """Closes a session."""
        self.stub.CloseSession(pb.CloseSessionRequest(session_id=self.id(session), attempt=attempt), timeout=60)

    def close_all(self) -> None:
        """Closes what a test left open."""
        for session, attempt in self._opened.items():
            self.close(session, attempt)

    def state(self, session: str) -> pb.EnvSession:
        """How a session stands."""
        return self.stub.GetSession(pb.GetSessionRequest(session_id=self.id(session)), timeout=10).session

    def stats(self) -> pb.GetStatsResponse:
        """Counts."""
        return self.stub.GetStats(pb.GetStatsRequest(), timeout=10)


@contextmanager
def door_to(gateway: Service) -> Iterator[Door]:
    """A door that closes."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]
    with grpc.insecure_channel(gateway.address, options=options) as channel:
        yield Door(channel)


@contextmanager
def refused(code: grpc.StatusCode, reason: str) -> Iterator[list[error_details_pb2.ErrorInfo]]:
    """Asserts that the body is refused so; the list then holds the error's info."""
    found: list[error_details_pb2.ErrorInfo] = []
    with pytest.raises(grpc.RpcError) as caught:
        yield found
    status = rpc_status.from_call(caught.value)
    assert status is not None, caught.value
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (caught.value.code(), info.reason) == (code, reason), caught.value.details()
    info.metadata["detail"] = status.message
    found.append(info)


def descendants(gateway: Service) -> list[psutil.Process]:
    """All processes that come from a gateway: its launcher, servers, and what they started."""
    return psutil.Process(gateway.pid).children(recursive=True)


def gone(processes: list[psutil.Process], *, within: float = 10) -> bool:
    """Whether all end within the time."""
    return not psutil.wait_procs(processes, timeout=within)[1]


def eventually(true: Callable[[], bool], *, within: float = 10) -> bool:
    """Polls until it is so."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
