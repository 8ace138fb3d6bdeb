"""A run's own process, started by the service: carries out its recipe, and keeps a checkpoint when told to stop."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from grpc import aio

from practicum.common.logging import configure_logging
from practicum.common.processes import exit_with_parent
from practicum.trainer.context import RunContext
from practicum.trainer.inference import Inference
from practicum.trainer.leftovers import leave_behind
from practicum.trainer.loop_thread import LoopThread
from practicum.trainer.outcome import EXIT_FAILED, EXIT_STOPPED, RunFailed, RunStopped
from practicum.trainer.progress import ProgressFile
from practicum.trainer.publishing import Publisher
from practicum.trainer.recipe import Backend, carry_out
from practicum.trainer.reporter import Reporter
from practicum.trainer.retry import reason
from practicum.trainer.rollouts import Rollouts
from practicum.trainer.tasks import RUN_LABEL
from practicum.v1 import trainer_pb2


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(prog="python -m practicum.trainer.run", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="a serialized RunSpec")
    parser.add_argument("--events", type=int, required=True, help="the descriptor that events are written to")
    parser.add_argument("--executor", required=True, help="the executor's address, or those of several: a:1,b:2")
    parser.add_argument("--inference", required=True, help="the inference proxy's address")
    parser.add_argument("--parent", type=int, required=True, help="the process that starts this, and ends it")
    parser.add_argument("--stop-seconds", type=float, default=30.0, help="how long stopping may take")
    arguments = parser.parse_args()
    loop = LoopThread()
    on_signal(loop, arguments.stop_seconds)
    exit_with_parent(arguments.parent)
    configure_logging()
    with (arguments.spec.with_name("lock")).open("w") as lock:
        # A process of this run whose service was killed may still be writing its last checkpoint.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            code = run(arguments, loop)
        except Exception:  # noqa: BLE001 - the process ends with it, in a way that no thread can hinder
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # AReaL's and torch's threads may be in the middle of something; nothing of ours is.


def on_signal(loop: LoopThread, seconds: float) -> None:
    """SIGTERM stops the run; when that takes too long, the process ends all the same, with the checkpoint before."""

    def stop(number: int, frame: object) -> None:
        if not loop.stopping.is_set():
            watchdog = threading.Timer(seconds, os._exit, [EXIT_STOPPED])
            watchdog.daemon = True
            watchdog.start()
        loop.interrupt()

    signal.signal(signal.SIGTERM, stop)
    # Ctrl-C reaches every process of a terminal; the service passes it on as SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(arguments: argparse.Namespace, loop: LoopThread) -> int:
    """Runs the recipe. Returns the exit code."""
    context = build(arguments, loop)
    try:
        carry_out(context, backend_of(context.spec.backend))
    except RunStopped:
        return EXIT_STOPPED
    except RunFailed as error:
        context.reporter.note(str(error))
        return EXIT_FAILED
    except aio.AioRpcError as error:
        context.reporter.note(f"a call to another service failed: {reason(error)}")
        return EXIT_FAILED
    finally:
        leave_behind(context)
        close(context)
    return 0


def build(arguments: argparse.Namespace, loop: LoopThread) -> RunContext:
    """Puts the parts together."""
    spec = trainer_pb2.RunSpec.FromString(arguments.spec.read_bytes())
    output = Path(spec.output_path).resolve()
    output.mkdir(parents=True, exist_ok=True)
    progress = ProgressFile(arguments.spec.with_name("progress.json"), model=spec.model_path)
    inference = loop.make(lambda: Inference(arguments.inference, model=spec.served_model))
    rollouts = loop.make(lambda: Rollouts(arguments.executor, run_id=spec.run_id, label=RUN_LABEL))
    return RunContext(
        spec=spec,
        output=output,
        loop=loop,
        progress=progress,
        reporter=Reporter(arguments.events, output / "metrics.jsonl"),
        rollouts=rollouts,
        inference=inference,
        publisher=Publisher(output / "weights", inference=inference, loop=loop, progress=progress),
    )


def backend_of(backend: trainer_pb2.TrainerBackend.ValueType) -> Backend:
    """The trainer that the spec asks for. AReaL is imported only when it is the one."""
    if backend == trainer_pb2.TRAINER_BACKEND_SIMULATED:
        from practicum.trainer.simulated import SimulatedBackend

        return SimulatedBackend()
    from practicum.trainer.areal_backend import ArealBackend

    return ArealBackend()


def close(context: RunContext) -> None:
    """Closes what is open."""
    context.loop.call(context.rollouts.close())
    context.loop.call(context.inference.close())
    context.reporter.close()
    context.loop.close()


if __name__ == "__main__":
    main()
