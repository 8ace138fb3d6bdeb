"""Starts the inference proxy: `python -m practicum.inference_proxy --help`."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from grpc import aio

from practicum.common.background import background
from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.errors import ConfigError
from practicum.common.server import serve
from practicum.inference_proxy.engine import Engine, client_session
from practicum.inference_proxy.model import load_model
from practicum.inference_proxy.monitor import watch_engine
from practicum.inference_proxy.policy import Policy
from practicum.inference_proxy.publisher import Publisher
from practicum.inference_proxy.sampler import Sampler
from practicum.inference_proxy.service import InferenceService
from practicum.inference_proxy.sessions import Sessions, forget_sessions
from practicum.v1 import inference_pb2_grpc

SERVICES = ["practicum.v1.InferenceService"]


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("inference_proxy", description="One door to vLLM that records exact tokens.", port=50053)
    parser.add_argument("--engine", default="http://127.0.0.1:8000", help="vLLM's base URL (default: %(default)s)")
    parser.add_argument("--model", type=Path, required=True, help="the folder that the engine serves")
    parser.add_argument("--weights-root", type=Path, required=True, help="updates are read only from below this folder")
    parser.add_argument(
        "--max-in-flight",
        type=int,
        default=1024,
        help="generations at a time; more are refused until some end (default: %(default)s)",
    )
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Builds the engine's client, the sampler and the publisher on it, and serves."""
    refuse_wrong(arguments)
    model = load_model(Path(arguments.model))
    policy, sessions = Policy(), Sessions()
    async with client_session() as http:
        engine = Engine(arguments.engine, http)
        sampler = Sampler(engine, max_in_flight=int(arguments.max_in_flight))
        publisher = Publisher(engine, policy=policy, root=Path(arguments.weights_root), model_folder=model.folder)

        def register(server: aio.Server) -> None:
            # The stubs call every method abstract; the generated base answers UNIMPLEMENTED, as the protocol says.
            service = InferenceService(  # type: ignore[abstract]
                model, sampler, sessions=sessions, publisher=publisher, policy=policy
            )
            inference_pb2_grpc.add_InferenceServiceServicer_to_server(service, server)

        async with background(watch_engine(engine, publisher)), background(forget_sessions(sessions)):
            await serve(server_config(arguments), services=SERVICES, register=register, drain=policy.close)
        await publisher.close()


def refuse_wrong(arguments: argparse.Namespace) -> None:
    """Names the flag that is wrong."""
    url = urlsplit(arguments.engine)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"--engine {arguments.engine!r} is not a base URL: give one such as http://127.0.0.1:8000")
    if not Path(arguments.weights_root).is_dir():
        raise ConfigError(f"--weights-root {arguments.weights_root} is not a folder: make it first")
    if int(arguments.max_in_flight) < 1:
        raise ConfigError("--max-in-flight: give 1 or more")


if __name__ == "__main__":
    main()
