"""A TCP relay that can be cut: connections stay up, and nothing passes until it is mended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK_BYTES = 65_536


class Relay:
    """Passes bytes between whoever dials it and one address."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._passing = threading.Event()
        self._passing.set()
        self._sockets: list[socket.socket] = [self._listener]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing passes, as if every packet were dropped."""
        self._passing.clear()

    def mend(self) -> None:
        """Everything passes again, what was held back first, as after a retransmission."""
        self._passing.set()

    def close(self) -> None:
        """Ends every connection."""
        self._passing.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                self._passing.wait()
                outer = socket.create_connection(self._target)
                self._sockets += [inner, outer]
                for source, sink in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._passing.wait()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(target: str) -> Iterator[Relay]:
    """A relay that ends with the context."""
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
