"""A PostgreSQL of one's own: in a temporary folder, reached by a Unix socket in it, gone afterwards.

`.venv/bin/python tests/support/postgres.py` runs one by hand and prints its URL.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil
import psycopg
import pytest

START_SECONDS = 60
USER = "practicum"
# In /tmp: the server's user can enter it whatever this process's TMPDIR is, and a socket's path may have 107 bytes.
ROOT = Path("/tmp")
PREFIX = "practicum-postgres-"
# Small, but as durable as users have it: fsync and full_page_writes stay on.
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
    "dynamic_shared_memory_type": "mmap",
}


@dataclass
class Postgres:
    """One cluster and its server, which may be stopped, killed, and started again."""

    folder: Path
    programs: Path
    server: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def create(self) -> None:
        """Makes the cluster. Who can enter the folder is trusted."""
        options = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-instructions"]
        command = as_server_user([str(self.programs / "initdb"), "--pgdata", str(self.folder / "data"), *options])
        made = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Starts the server and waits until it takes connections."""
        settings = SETTINGS | {"unix_socket_directories": str(self.folder)}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = as_server_user([str(self.programs / "postgres"), "-D", str(self.folder / "data"), *flags])
        with (self.folder / "log").open("ab") as log:
            self.server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.server.poll() is None, f"PostgreSQL ended:\n{self.text}"
            assert time.monotonic() < deadline, f"PostgreSQL does not answer:\n{self.text}"
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops the server as `pg_ctl stop -m fast` does; its clients are cut off."""
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(START_SECONDS)

    def kill(self) -> None:
        """kill -9 of the server and all its processes."""
        assert self.server is not None
        children = psutil.Process(self.server.pid).children(recursive=True)
        self.server.kill()
        self.server.wait()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        # The next server is refused for as long as one of them has the shared memory.
        while any(map(lives, children)):
            time.sleep(0.001)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            psycopg.connect(self.conninfo("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://{USER}@/{name}?host={self.folder}"

    def conninfo(self, database: str) -> str:
        """How libpq is told of a database."""
        return f"host={self.folder} user={USER} dbname={database}"

    @property
    def text(self) -> str:
        """What it logged."""
        return (self.folder / "log").read_text(errors="replace")


def lives(process: psutil.Process) -> bool:
    """Whether a process runs; one that only waits to be reaped holds nothing."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server that ends with the context, or with this process."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=ROOT))
    owner = (folder / "owner").open("w")
    fcntl.flock(owner, fcntl.LOCK_EX)
    if user := server_user():
        os.chown(folder, user.pw_uid, user.pw_gid)
    postgres = Postgres(folder, find_programs())
    try:
        postgres.create()
        postgres.start()
        yield postgres
    finally:
        postgres.stop()
        shutil.rmtree(folder)
        owner.close()


def sweep() -> None:
    """Removes what was left by processes that were killed: their servers ended with them, and nobody holds the lock."""
    for owner in ROOT.glob(f"{PREFIX}*/owner"):
        with suppress(OSError), owner.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that was made just now may not be locked yet.
            if time.time() - owner.stat().st_mtime > START_SECONDS:
                shutil.rmtree(owner.parent, ignore_errors=True)


def find_programs() -> Path:
    """The folder of the server's programs: that on the path, else the newest."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    places = (Path("/usr/lib/postgresql").glob("*/bin/initdb"), Path("/usr").glob("pgsql-*/bin/initdb"))
    found = [path.parent for place in places for path in place]
    assert found, "no PostgreSQL server is on this machine: run scripts/install_postgres.sh"
    return max(found, key=lambda folder: int(folder.parent.name.removeprefix("pgsql-")))


def server_user() -> pwd.struct_passwd | None:
    """Who the server runs as when that can't be this process's user: it refuses to be root."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def as_server_user(command: Sequence[str]) -> list[str]:
    """A command that runs as the server's user, and ends when this process does."""
    user = server_user()
    change = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups"] if user else []
    return ["setpriv", "--pdeathsig", "INT", *change, *command]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests that don't break it."""
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """An empty database."""
    return postgres.new_database()


def main() -> None:
    """Runs a server until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), running_postgres() as postgres:
        sys.stdout.write(f"{postgres.new_database()}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
