"""Opens the database: an SQLite file, or PostgreSQL by its URL."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from practicum.common.errors import ConfigError

SYNCHRONOUS = {"full": "FULL", "process": "NORMAL"}


def parse_url(database: str) -> URL:
    """The URL of `--database`: a path is one of an SQLite file."""
    try:
        url = make_url(database) if "://" in database else URL.create("sqlite", database=database)
    except ArgumentError as error:
        raise ConfigError(f"--database: {error}") from error
    if url.get_backend_name() == "sqlite" and url.database:
        return url
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError(f"--database {url.render_as_string()}: give the path of a file, or postgresql://user@host/name")


def open_engine(url: URL, durability: str) -> Engine:
    """An engine. `durability` is SQLite's: `full` (the disk has it) or `process` (a kill -9 loses nothing, power may).

    PostgreSQL commits as its own settings say: without synchronous_commit it loses what it answered when it is killed.
    """
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url)
        pragmas = ("journal_mode=WAL", f"synchronous={SYNCHRONOUS[durability]}")
        event.listen(engine, "connect", lambda connection, _: configure(connection, pragmas))
        return engine
    return create_engine(url, paramstyle="format", pool_pre_ping=True)


def configure(connection: Any, pragmas: tuple[str, ...]) -> None:
    """Sets up a new connection to an SQLite file."""
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")


def lock_file(path: Path) -> IO[str]:
    """Holds a lock beside an SQLite file: two executors on one store would both give out its work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.with_name(path.name + ".lock").open("w")
    except OSError as error:
        raise ConfigError(f"--database {path}: {error.strerror or error}; give a file in a folder of yours") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise ConfigError(f"--database {path}: another executor has it open; stop that one, or give another") from error
    return handle
