"""Whether a service answers."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import grpc

CHECK = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}: nothing but the protocol itself is needed here.


def healthy(address: str) -> bool:
    """Whether gRPC's health service says SERVING."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = channel.unary_unary(CHECK, request_serializer=bytes, response_deserializer=bytes)
        try:
            return bool(check(b"", timeout=1.0) == SERVING)
        except grpc.RpcError:
            return False


def http_healthy(url: str) -> bool:
    """Whether an engine answers its health path."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1.0) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def port_taken(address: str) -> bool:
    """Whether somebody listens there."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0
