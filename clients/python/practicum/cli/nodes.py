"""`practicum nodes`: nodes and queues as the executor sees them."""

from __future__ import annotations

from practicum.cli.screen import console
from practicum.cli.tables import nodes_table, queues_table
from practicum.client import ExecutorClient


def nodes(address: str) -> None:
    """Shows both once."""
    with ExecutorClient(address) as executor:
        known, queues = executor.nodes(), executor.queues()
    console.print(nodes_table(known) if known else "no node is connected")
    if queues:
        console.print()
        console.print(queues_table(queues))
