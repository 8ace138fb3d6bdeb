"""`practicum up`: the services on this machine, until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Group

from practicum.cli.demo import starting
from practicum.cli.engine import vllm_python
from practicum.cli.failures import Refused
from practicum.cli.screen import screen
from practicum.cli.suite import Plan, Suite, suite
from practicum.cli.tables import nodes_table, queues_table, table
from practicum.client import CallFailed, ExecutorClient

REFRESH_SECONDS = 1.0


def up(plan: Plan) -> None:
    """Starts all, shows how they stand, starts again what ends by itself, and stops all at the end."""
    if plan.model is not None:
        check_model(plan.model)
    plan.folder.mkdir(parents=True, exist_ok=True)
    with suite(plan) as services, screen() as display:
        services.wait(lambda waiting: display.show(starting(waiting), starting(waiting)))
        for child in services.children:
            display.say(f"{child.name:>16}  {child.address}")
        display.say(f"logs are in {plan.folder / 'logs'}; Ctrl-C stops everything")
        with ExecutorClient(plan.ports.executor) as executor:
            while True:
                for name in services.supervise():
                    display.say(f"{name} ended, and was started again")
                try:
                    nodes, queues = executor.nodes(), executor.queues()
                except CallFailed:
                    nodes, queues = [], []
                running = sum(node.running for node in nodes)
                waiting = sum(queue.queued for queue in queues)
                line = f"{len(nodes)} nodes, {running} rollouts running, {waiting} waiting"
                display.show(Group(states(services), nodes_table(nodes), queues_table(queues)), line)
                time.sleep(REFRESH_SECONDS)


def states(services: Suite) -> Group:
    """The services with their restarts."""
    made = table("service", "address", "#restarts")
    for child in services.children:
        made.add_row(child.name, child.address, str(child.restarts.total))
    return Group(made, "")


def check_model(model: Path) -> None:
    """Raises Refused when a model can't be served here."""
    if not (model / "config.json").is_file():
        raise Refused(f"--model {model}: no config.json there; give a folder in Hugging Face's layout")
    if not vllm_python().exists():
        raise Refused(
            f"vLLM's environment is missing ({vllm_python()}); run `make setup`, or set PRACTICUM_VLLM_PYTHON"
        )
