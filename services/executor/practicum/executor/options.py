"""The executor's flags, and what they choose."""

from __future__ import annotations

import argparse
import uuid

from practicum.common.config import ServiceParser
from practicum.common.errors import ConfigError
from practicum.common.server import split_address
from practicum.executor.core import Settings
from practicum.executor.delivery.retention import Keep
from practicum.executor.leadership.leading import place_of
from practicum.executor.leadership.lease import Candidate, LeaderLease
from practicum.executor.scheduling.shares import MAX_WEIGHT, MIN_WEIGHT
from practicum.executor.store.engine import parse_url
from practicum.executor.tasks.intake import MAX_BACKLOG
from practicum.executor.tasks.validation import TASK_ID

DAY_SECONDS = 24 * 3600.0
MEGABYTE = 1_000_000
# Of megabytes, days and rollouts: far beyond what anybody needs, and small enough for every sum.
MOST = 10**9
# A standby sees at once that the lease has run out; the other half of the time is for reading what the store holds. It
# took 2.4 s with 100,000 rollouts queued, on two busy cores.
VALID_SHARE = 0.5


def executor_parser() -> ServiceParser:
    """The command line."""
    parser = ServiceParser("executor", description="Accepts tasks and keeps them durably.", port=50051)
    add_store(parser)
    add_leadership(parser)
    add_retention(parser)
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=30.0,
        help="a node that is silent for so long has lost its rollouts (default: %(default)s)",
    )
    parser.add_argument(
        "--max-backlog",
        type=int,
        default=MAX_BACKLOG,
        help="rollouts that may wait or run; more are refused until some end (default: %(default)s)",
    )
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME[:WEIGHT[:LIMIT]]",
        help="a queue's share within a priority (1 unless given), and how many rollouts may wait or run in it; repeats",
    )
    return parser


def add_store(parser: ServiceParser) -> None:
    """Where everything is kept."""
    parser.add_argument(
        "--database",
        default="executor.db",
        help="an SQLite file, or postgresql://user@host/name (default: %(default)s)",
    )
    parser.add_argument(
        "--durability",
        choices=("full", "process"),
        default="full",
        help="of SQLite. full: the disk has it; process: survives a kill -9 but not a power cut (default: %(default)s)",
    )


def add_leadership(parser: ServiceParser) -> None:
    """Who leads, where several executors have one PostgreSQL."""
    parser.add_argument(
        "--leader-lease-seconds",
        type=float,
        default=5.0,
        help="of PostgreSQL: a standby leads at the latest so long after the leader died (default: %(default)s)",
    )
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="of PostgreSQL: where others reach this executor (default: --address)"
    )


def add_retention(parser: ServiceParser) -> None:
    """What may be pruned."""
    parser.add_argument(
        "--keep-days",
        type=float,
        help="prune trajectories that every consumer acked and that are older (default: keep all)",
    )
    parser.add_argument(
        "--keep-megabytes",
        type=float,
        help="prune the oldest trajectories that every consumer acked beyond this size (default: keep all)",
    )
    parser.add_argument(
        "--consumer-days",
        type=float,
        default=7.0,
        help="forget a consumer that was not used for so long (default: %(default)s)",
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """How the executor schedules. Raises ConfigError."""
    if not 0.1 <= arguments.lease_seconds <= DAY_SECONDS:
        raise ConfigError(f"--lease-seconds {arguments.lease_seconds}: give 0.1 to {DAY_SECONDS:g}")
    if not 1 <= arguments.max_backlog <= MOST:
        raise ConfigError(f"--max-backlog {arguments.max_backlog}: give 1 to {MOST}")
    queues = [parse_queue(text) for option in arguments.queue for text in option.split(",")]
    return Settings(
        lease_seconds=arguments.lease_seconds,
        max_backlog=arguments.max_backlog,
        queue_weights={name: weight for name, weight, _ in queues},
        queue_limits={name: limit for name, _, limit in queues if limit},
    )


def lease_of(arguments: argparse.Namespace) -> LeaderLease | None:
    """The lease that leaders on a PostgreSQL need; None for an SQLite file, which is locked. Raises ConfigError."""
    url = parse_url(arguments.database)
    if url.get_backend_name() == "sqlite":
        return None
    if not 0.5 <= arguments.leader_lease_seconds <= DAY_SECONDS:
        raise ConfigError(f"--leader-lease-seconds {arguments.leader_lease_seconds}: give 0.5 to {DAY_SECONDS:g}")
    advertised = arguments.advertise or arguments.address
    host, port = split_address(advertised)
    if not port or host in ("0.0.0.0", "::"):
        raise ConfigError(f"nobody can call {advertised}: give --advertise, the host and port where others reach this")
    candidate = Candidate(uuid.uuid4().hex, place_of(arguments.address), advertised)
    return LeaderLease(url, candidate, seconds=VALID_SHARE * arguments.leader_lease_seconds)


def keep_of(arguments: argparse.Namespace) -> Keep:
    """What is kept. Raises ConfigError."""
    for flag in ("keep_days", "keep_megabytes", "consumer_days"):
        value = getattr(arguments, flag)
        if value is not None and not 0 < value <= MOST:
            raise ConfigError(f"--{flag.replace('_', '-')} {value}: give more than 0, and at most {MOST}")
    return Keep(
        seconds=None if arguments.keep_days is None else arguments.keep_days * DAY_SECONDS,
        size_bytes=None if arguments.keep_megabytes is None else int(arguments.keep_megabytes * MEGABYTE),
        consumer_seconds=arguments.consumer_days * DAY_SECONDS,
    )


def parse_queue(text: str) -> tuple[str, float, int]:
    """Name, weight and limit of a queue; the limit is 0 when there is none. Raises ConfigError."""
    name, _, rest = text.partition(":")
    weight, _, limit = rest.partition(":")
    try:
        parsed = (name, float(weight or 1), int(limit or 0))
    except ValueError:
        parsed = ("", 0.0, 0)
    name, share, most = parsed
    if not TASK_ID.fullmatch(name) or not MIN_WEIGHT <= share <= MAX_WEIGHT or not 0 <= most <= MOST:
        weights = f"a weight of {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise ConfigError(
            f"--queue {text!r}: give NAME:WEIGHT:LIMIT, such as urgent:3:1000 or urgent:3, with {weights}"
        )
    return parsed
