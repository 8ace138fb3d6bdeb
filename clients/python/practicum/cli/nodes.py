"""`practicum nodes` and `drain`: nodes and queues as the executor sees them, and a node that is to rest."""

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


def drain(address: str, node_id: str) -> None:
    """Has a node take nothing new."""
    with ExecutorClient(address) as executor:
        executor.drain(node_id)
        running = next((node.running for node in executor.nodes() if node.node_id == node_id), 0)
    console.print(f"{node_id} takes nothing new; rollouts that still run there: {running}", markup=False)
