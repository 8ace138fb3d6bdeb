"""Goes on from where an earlier attempt broke off, only if nothing is lost or done twice by it.

The journal has to tell all that the environment has seen, the environment has to live still, and the proxy has to have
every token that was sampled. Else the attempt begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from practicum.node.deadline import Deadline
from practicum.node.environment import Environment
from practicum.node.failures import InfrastructureError
from practicum.node.model import Model
from practicum.node.past import Past, past_of
from practicum.v1 import dispatch_pb2, message_pb2, task_pb2, trajectory_pb2

OVERTAKEN = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_NODE,
    reason="RESUME_OVERTAKEN",
    detail="the earlier attempt acted on while this one took its environment over",
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What an attempt goes on from: steps, and the tokens of those that a model made."""

    past: Past
    graphs: Sequence[trajectory_pb2.TokenGraph] = ()


async def resume(
    assignment: dispatch_pb2.Assignment, *, environment: Environment, model: Model, deadline: Deadline
) -> Resumed | None:
    """Takes over what an earlier attempt left, which can do nothing more then. None: begin anew."""
    past, task = past_of(assignment.journal), assignment.task
    if past is None or (task.HasField("environment") and not await environment.stands(past)):
        return None
    graphs = []
    if past.turns:
        if (graph := await model.take_over(past)) is None:
            return None
        graphs.append(graph)
    if task.HasField("environment") and not await join(environment, task.environment, past, deadline.for_step()):
        return None
    return Resumed(past, graphs)


async def join(environment: Environment, spec: task_pb2.EnvironmentSpec, past: Past, timeout: float) -> bool:
    """Opens the earlier attempt's environment. Returns whether it is that one."""
    if not await environment.open(spec, timeout=timeout, resume=True):
        return False
    # Until then the earlier attempt's node could act on it, if it was only cut off.
    if not await environment.stands(past):
        raise InfrastructureError(OVERTAKEN)
    return True
