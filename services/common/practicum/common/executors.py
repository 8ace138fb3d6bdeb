"""Several executors on one database, of which one leads: calls go to it, wherever it is."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import grpc
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from practicum.common.channels import connect
from practicum.common.server import split_address


class Executors:
    """A channel to each. Whoever calls says when a call failed; the next is made elsewhere."""

    def __init__(self, addresses: str) -> None:
        """`addresses`: of one executor or of several, with commas between."""
        self._addresses = [address.strip() for address in addresses.split(",")]
        for address in self._addresses:
            split_address(address)
        self._channels: dict[str, aio.Channel] = {}
        self.address = self._addresses[0]
        """Who is called next."""
        self.several = len(self._addresses) > 1
        """Whether there is another to turn to. A standby that answers is one of several, whoever knew of the others."""

    @property
    def channel(self) -> aio.Channel:
        """To who is called next."""
        if self.address not in self._channels:
            self._channels[self.address] = connect(self.address)
        return self._channels[self.address]

    def failed(self, address: str, error: grpc.RpcError | None = None) -> None:
        """A call to this address failed, or its stream broke: on to the leader that the answer names, or to the next.

        When others of its calls failed as well, or have found the leader, it stays with that.
        """
        leader = leader_of(error) if error is not None else None
        self.several |= leader is not None
        if leader:
            self.address = leader
        elif address == self.address:
            here = self._addresses.index(address) if address in self._addresses else -1
            self.address = self._addresses[(here + 1) % len(self._addresses)]

    async def close(self) -> None:
        """Closes the channels."""
        for channel in self._channels.values():
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def leader_of(error: grpc.RpcError) -> str | None:
    """The address of the leader that a standby names, empty when it knows none; None when no standby answered."""
    status, info = rpc_status.from_call(error), error_details_pb2.ErrorInfo()
    for detail in status.details if status is not None else ():
        if detail.Unpack(info) and info.reason == "NOT_LEADER":
            return str(info.metadata.get("leader", ""))
    return None
