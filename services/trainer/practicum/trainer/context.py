"""What every stage of a run works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from practicum.trainer.inference import Inference
from practicum.trainer.loop_thread import LoopThread
from practicum.trainer.progress import ProgressFile
from practicum.trainer.publishing import Publisher
from practicum.trainer.reporter import Reporter
from practicum.trainer.rollouts import Rollouts
from practicum.trainer.tasks import TaskMaker
from practicum.v1 import trainer_pb2


@dataclass(frozen=True, slots=True)
class RunContext:
    """The parts of one run."""

    spec: trainer_pb2.RunSpec
    output: Path
    loop: LoopThread
    progress: ProgressFile
    reporter: Reporter
    rollouts: Rollouts
    inference: Inference
    publisher: Publisher

    @property
    def model(self) -> Path:
        """The weights that the stage under way began with."""
        return Path(self.progress.now.model)

    def maker(self, stage: str) -> TaskMaker:
        """Makes the stage's tasks."""
        return TaskMaker(self.spec.run_id, stage, self.progress.now.incarnation)

    def consumer(self, stage: str) -> str:
        """The name under which a stage reads stored trajectories, anew at each start."""
        return f"run.{self.spec.run_id}.{stage}.{self.progress.now.incarnation}"
