"""The `practicum` command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from practicum.cli.failures import explained
from practicum.cli.options import BASE_PORT, CATALOGUE, EXECUTOR, BasePort, Catalogue, ExecutorAddress

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Practicum: agents learn from practice.",
)
Folder = Annotated[Path, typer.Option(help="Folder for databases, logs and results.")]


@app.command()
def up(
    folder: Folder = Path("runs/up"),
    base_port: BasePort = BASE_PORT,
    catalogue: Catalogue = CATALOGUE,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes to start.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Rollouts at once on each node.")] = 16,
    agent: Annotated[list[str], typer.Option(help="KIND=MODULE:FUNCTION of an agent to run; may be repeated.")] = [],  # noqa: B006
    model: Annotated[
        Path | None, typer.Option(help="Model folder: starts an engine, the inference proxy and the trainer too.")
    ] = None,
) -> None:
    """Start the services on this machine, watch over them, and stop them with Ctrl-C."""
    from practicum.cli.suite import Plan, Ports
    from practicum.cli.up import up as run

    with explained():
        run(Plan(folder, Ports(base_port), catalogue, nodes=nodes, slots=slots, agents=agent, model=model))


@app.command()
def demo(
    folder: Folder = Path("runs/demo"),
    base_port: BasePort = BASE_PORT,
    catalogue: Catalogue = CATALOGUE,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks to solve.")] = 500,
) -> None:
    """Have scripted agents on two nodes solve the bundled environment's tasks. Needs no model."""
    from practicum.cli.demo import demo as run

    with explained():
        run(folder, base_port=base_port, catalogue=catalogue, tasks=tasks)


@app.command()
def quickstart(
    folder: Annotated[Path | None, typer.Option(help="Folder for everything; default runs/quickstart/seed-N.")] = None,
    seed: Annotated[int, typer.Option(help="For the model, the tasks and the training.")] = 1,
    base_port: BasePort = BASE_PORT,
    catalogue: Catalogue = CATALOGUE,
    steps: Annotated[int, typer.Option(min=1, help="Steps of reinforcement learning.")] = 80,
    fresh: Annotated[bool, typer.Option(help="Forget what an earlier run left in the folder.")] = False,
    learning_rate: Annotated[float, typer.Option(help="Of reinforcement learning; 0 is a control.")] = 2e-4,
    more: Annotated[int, typer.Option(min=0, help="Steps to add to the run that ended in the folder.")] = 0,
) -> None:
    """Teach a tiny model to use a tool: fine-tuning, then reinforcement learning, on this machine."""
    from practicum.cli.quickstart import Settings
    from practicum.cli.quickstart import quickstart as run

    with explained():
        run(
            Settings(
                (folder or Path("runs/quickstart") / f"seed-{seed}").resolve(),
                seed=seed,
                base_port=base_port,
                catalogue=catalogue,
                steps=steps,
                learning_rate=learning_rate,
                more=more,
            ),
            fresh=fresh,
        )


@app.command()
def submit(
    file: Annotated[Path | None, typer.Argument(help="Tasks as JSON Lines (practicum.v1.Task).")] = None,
    instruction: Annotated[str, typer.Option(help="Submit one task that asks for this.")] = "",
    agent: Annotated[str, typer.Option(help="With --instruction: the agent's kind.")] = "tool_agent",
    environment: Annotated[str, typer.Option(help="With --instruction: the environment.")] = "",
    rollouts: Annotated[int, typer.Option(min=0, help="Rollouts of each task; 0 leaves what the tasks say.")] = 0,
    wait: Annotated[bool, typer.Option(help="Wait for the rollouts and show what came of them.")] = False,
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Submit tasks."""
    from practicum.cli.tasks import submit as run

    with explained():
        run(
            executor,
            file,
            instruction=instruction,
            agent=agent,
            environment=environment,
            rollouts=rollouts,
            wait=wait,
        )


@app.command()
def trajectories(
    consumer: Annotated[str, typer.Option(help="Follow under this name, from where it stopped last time.")] = "",
    label: Annotated[list[str], typer.Option(help="KEY=VALUE that tasks must have; may be repeated.")] = [],  # noqa: B006
    queue: Annotated[list[str], typer.Option(help="Only of this queue; may be repeated.")] = [],  # noqa: B006
    min_reward: Annotated[float | None, typer.Option(help="Only with at least this reward.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Write JSON Lines to this file instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines instead of a table.")] = False,
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Show stored trajectories, or follow them as they come."""
    from practicum.cli.tasks import trajectories as run

    with explained():
        run(
            executor,
            consumer=consumer,
            labels=label,
            queues=queue,
            min_reward=min_reward,
            limit=limit,
            output=output,
            as_json=as_json,
        )


@app.command()
def watch(
    rollout: Annotated[str, typer.Argument(help="A rollout's id, such as t0/0.")],
    follow: Annotated[bool, typer.Option(help="Go on until the rollout ends.")] = True,
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Watch what is said in a rollout."""
    from practicum.cli.tasks import watch as run

    with explained():
        run(executor, rollout, follow=follow)


@app.command()
def send(
    rollout: Annotated[str, typer.Argument(help="A rollout's id, such as t0/0.")],
    text: Annotated[str, typer.Argument(help="What to say.")],
    to: Annotated[str | None, typer.Option(help="To this receiver, such as agent; default: to all.")] = None,
    topic: Annotated[str | None, typer.Option(help="On this topic.")] = None,
    sender: Annotated[str, typer.Option("--as", help="Who speaks.")] = "user",
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Say something in a rollout that has not ended."""
    from practicum.cli.tasks import send as run

    with explained():
        run(executor, rollout, text, to=to, topic=topic, sender=sender)


@app.command()
def nodes(executor: ExecutorAddress = EXECUTOR) -> None:
    """Show nodes and queues."""
    from practicum.cli.nodes import nodes as run

    with explained():
        run(executor)


@app.command()
def drain(
    node: Annotated[str, typer.Argument(help="A node's id, as `practicum nodes` shows it.")],
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Have a node finish what it runs and take nothing new."""
    from practicum.cli.nodes import drain as run

    with explained():
        run(executor, node)


@app.command("dead-letters")
def dead_letters(
    requeue: Annotated[bool, typer.Option("--requeue", help="Put them back, with fresh attempts.")] = False,
    label: Annotated[list[str], typer.Option(help="KEY=VALUE that tasks must have; may be repeated.")] = [],  # noqa: B006
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """List rollouts whose attempts are used up, or put them back."""
    from practicum.cli.dead_letters import dead_letters as run
    from practicum.cli.tasks import labels_of

    with explained():
        run(executor, labels=labels_of(label), requeue=requeue)


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Show it once, as text.")] = False,
    executor: ExecutorAddress = EXECUTOR,
) -> None:
    """Watch queues and nodes, live; q ends it."""
    from practicum.cli.top import top as run

    with explained():
        run(executor, once=once)


@app.command()
def doctor(base_port: BasePort = BASE_PORT) -> None:
    """Check versions, ports, engine and services, and say what to do."""
    from practicum.cli.doctor import doctor as run

    with explained():
        if not run(base_port):
            raise typer.Exit(1)


def main() -> None:
    """The entry point."""
    app()
