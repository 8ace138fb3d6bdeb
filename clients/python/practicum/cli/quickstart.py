"""`practicum quickstart`: every service for real, and a tiny model that learns to use a tool."""

from __future__ import annotations

import json
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.panel import Panel

from practicum.cli.demo import make, make_tasks, starting
from practicum.cli.engine import vllm_python
from practicum.cli.failures import Refused
from practicum.cli.folders import claim
from practicum.cli.following import Following
from practicum.cli.recipe import AFTER_RL, AFTER_SFT, BEFORE, GREEDY, SAMPLED, WITHOUT_TOOLS, more, recipe
from practicum.cli.run_view import RunView
from practicum.cli.screen import Screen, console, screen
from practicum.cli.suite import Plan, Ports, Suite, suite
from practicum.client import CallFailed, ExecutorClient, TrainerClient, read_tasks
from practicum.v1 import executor_pb2, trainer_pb2

TEACHER = "boxes_teacher=practicum.environments.boxes.agents:teacher"
SLOTS = 48
REFRESH_SECONDS = 0.5
# Settings that may differ from one call to the next on the same folder.
PASSING = ("base_port", "catalogue", "more")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run, and where everything of it goes."""

    folder: Path
    seed: int
    base_port: int
    catalogue: Path
    steps: int
    learning_rate: float
    more: int = 0
    """Steps to add to a run that ended; 0: the run itself."""

    @property
    def model(self) -> Path:
        """The folder of the model to begin from."""
        return self.folder / "model"


def quickstart(settings: Settings, *, fresh: bool) -> None:
    """Makes a model and tasks, starts the services, has the teacher play and the model practise; tells what came."""
    if not vllm_python().exists():
        raise Refused(
            f"vLLM's environment is missing ({vllm_python()}); run `make setup`, or set PRACTICUM_VLLM_PYTHON"
        )
    began = time.monotonic()
    claim(settings.folder, fresh=fresh)
    prepare(settings)
    view = RunView()
    ports = Ports(settings.base_port)
    plan = Plan(
        settings.folder,
        ports,
        settings.catalogue,
        slots=SLOTS,
        agents=[TEACHER],
        model=settings.model,
        durability="process",
    )
    with suite(plan) as services, screen() as display:
        names = [
            "executor",
            "env_gateway",
            "trainer",
            *(c.name for c in services.children if c.name.startswith("node")),
        ]
        services.wait(lambda waiting: display.show(starting(waiting), starting(waiting)), names=names)
        display.say("services are up; the engine loads the model meanwhile")
        run = practise(settings, ports, services, view, display)
    report(settings, view, run, seconds=time.monotonic() - began)


def prepare(settings: Settings) -> None:
    """Makes what is not there yet. A folder of other settings is refused."""
    kept = settings.folder / "settings.json"
    wanted = {name: str(value) for name, value in asdict(settings).items() if name not in PASSING}
    if settings.more:
        if not (settings.folder / "run" / "model").exists():
            raise Refused(f"{settings.folder} holds no run that ended; leave --more out first")
        return
    if kept.exists() and json.loads(kept.read_text()) != wanted:
        raise Refused(f"{settings.folder} holds a run with other settings; give --fresh or another --folder")
    kept.write_text(json.dumps(wanted))
    if not (settings.folder / "tasks").exists():
        make_tasks(settings.folder / "tasks", seed=settings.seed)
    if not settings.model.exists():
        console.print("making a model with random weights, and its tokenizer")
        make("practicum.environments.boxes.model", settings.model, "--seed", str(settings.seed))


def practise(settings: Settings, ports: Ports, services: Suite, view: RunView, display: Screen) -> trainer_pb2.Run:
    """Submits the teacher's tasks, starts the run, and shows it until it ends."""
    make_spec, steps = (more, settings.more) if settings.more else (recipe, settings.steps)
    spec = make_spec(settings.folder, seed=settings.seed, steps=steps, learning_rate=settings.learning_rate)
    with ExecutorClient(ports.executor) as executor, TrainerClient(ports.trainer) as trainer:
        executor.submit(read_tasks(settings.folder / "tasks" / "sft.jsonl"))
        trainer.start(spec)
        watching = Following(trainer, spec.run_id, view)
        watching.start()
        ended, at = 0, time.monotonic()
        rate = 0.0
        said = 0
        while watching.is_alive():
            for name in services.supervise():
                display.say(f"{name} ended, and was started again")
            nodes, done = stand(executor)
            if (now := time.monotonic()) - at >= 2.0:
                rate, ended, at = (done - ended) / (now - at), done, now
            display.show(view.picture(nodes, rate), f"{view.line} · {rate:.0f} rollouts/s")
            for stage, result in view.measurements[said:]:
                display.say(f"{stage}: {result.successes} of {result.tasks} at temperature {result.temperature:g}")
            said = len(view.measurements)
            watching.join(REFRESH_SECONDS)
        if watching.error is not None:
            raise watching.error
        return trainer.run(spec.run_id)


def stand(executor: ExecutorClient) -> tuple[list[executor_pb2.NodeInfo], int]:
    """Nodes, and how many rollouts have ended."""
    try:
        return executor.nodes(), sum(queue.done for queue in executor.queues())
    except CallFailed:
        return [], 0


def report(settings: Settings, view: RunView, run: trainer_pb2.Run, *, seconds: float) -> None:
    """What came of it, and what to do next. Raises Refused when the run failed."""
    if run.state != trainer_pb2.RUN_STATE_SUCCEEDED:
        logs = settings.folder / "logs"
        raise Refused(f"the run did not succeed: {run.detail or 'it was stopped'}; logs are in {logs}")
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (cpu.ru_utime + cpu.ru_stime) / 60
    console.print()
    console.print(view.measured())
    console.print()
    console.print(view.staleness())
    console.print(
        f"\ntraining time during which rollouts ran: {view.overlap_share:.0%} · tokens of staleness 1 and more: "
        f"{view.stale_share:.0%} · trainer idle: {view.trainer_idle_share:.0%}\n"
        f"{seconds / 60:.1f} minutes, {minutes:.1f} CPU-minutes",
        soft_wrap=True,
    )
    if not settings.more:
        write_results(settings, view, seconds=seconds, cpu_minutes=minutes)
    folder = settings.folder
    console.print(
        Panel(
            f"learning curve    {Path(run.spec.output_path) / 'learning_curve.png'}\n"
            f"look at rollouts  practicum up --folder {folder} --model {Path(run.spec.output_path) / 'model'}\n"
            f"                  practicum trajectories --limit 10\n"
            f"                  practicum watch boxes-{settings.seed}-sft-0/0\n"
            f"practise more     practicum quickstart --folder {folder} --seed {settings.seed} --more 40",
            title="next",
            expand=False,
        )
    )


def write_results(settings: Settings, view: RunView, *, seconds: float, cpu_minutes: float) -> None:
    """The figures in a file, for programs."""
    results = {
        "seed": settings.seed,
        "greedy_before": view.success(BEFORE, GREEDY),
        "greedy_after_sft": view.success(AFTER_SFT, GREEDY),
        "sampled_after_sft": view.success(AFTER_SFT, SAMPLED),
        "greedy_after_rl": view.success(AFTER_RL, GREEDY),
        "sampled_after_rl": view.success(AFTER_RL, SAMPLED),
        "sampled_without_tools": view.success(WITHOUT_TOOLS, SAMPLED),
        "overlap_share": view.overlap_share,
        "stale_share": view.stale_share,
        "trainer_idle_share": view.trainer_idle_share,
        "seconds": seconds,
        "cpu_minutes": cpu_minutes,
    }
    (settings.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
