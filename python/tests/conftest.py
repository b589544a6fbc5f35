"""What the tests share: local groups, and groups of real agents, each in a directory that goes with
it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import distlock
import pytest

# What is started in the background of a script ignores SIGINT, and hands that on. A handler is
# not handed on: Python programs that are started from here have their own.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No wait of a test is longer.
PATIENCE = 30.0
LEASE = 1.0


def eventually(what: str, look: Callable[[], object]) -> None:
    """Looks again and again, until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def bounded(main: Coroutine[Any, Any, None]) -> None:
    """Runs it on a loop of its own."""

    async def run() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await main

    asyncio.run(run(), debug=False)


def keep_the_interpreter(seconds: float) -> None:
    """No other thread of Python runs meanwhile: what is called by `PyDLL` keeps the GIL."""
    ended = time.monotonic() + seconds
    while (left := ended - time.monotonic()) > 0:
        # At most a second, for which usleep(3) need not last longer.
        ctypes.PyDLL(None).usleep(int(min(left, 0.9) * 1e6))


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """A short path, for addresses of Unix sockets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="dl"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def agents(directory: pathlib.Path) -> Iterator[list[distlock.Agent]]:
    """Two of one local group: as good as two processes."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(distlock.Agent(directory=directory / "local")) for _ in range(2)]


class Group:
    """Members 1 to `size` over Unix datagrams, with agents that serve local programs."""

    def __init__(self, directory: pathlib.Path, size: int) -> None:
        self.directory = directory
        self.config = directory / "group.toml"
        text = f'lease = "{int(LEASE * 1000)}ms"\n[group]\nname = "shop"\n'
        for member in range(1, size + 1):
            text += f'[[member]]\nid = {member}\naddress = "unix:{directory}/{member}"\n'
        self.config.write_text(text)
        self.agents: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *members: int) -> None:
        """Starts their agents."""
        for member in members:
            with open(self.directory / f"{member}.log", "wb") as log:
                options = {
                    "--config": self.config,
                    "--id": member,
                    "--state-dir": self.directory / "state",
                    "--socket": self.socket(member),
                }
                words = [str(word) for option in options.items() for word in option]
                self.agents[member] = subprocess.Popen(
                    [program(), "agent", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        for member in members:
            stdout = self.agents[member].stdout
            assert stdout is not None
            ready = stdout.readline()
            assert b"ready" in ready, (self.directory / f"{member}.log").read_text()

    def socket(self, member: int) -> pathlib.Path:
        return self.directory / f"{member}.sock"

    def client(self, member: int) -> distlock.Agent:
        return distlock.Agent(socket=self.socket(member))

    def member(self, member: int) -> distlock.Agent:
        """This process as a member."""
        return distlock.Agent(config=self.config, id=member, state_dir=self.directory / "state")

    def signal(self, member: int, number: int) -> None:
        self.agents[member].send_signal(number)

    def end(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.communicate()


def program() -> str:
    """The program `distlock`, of which `.ci/python` says where it is."""
    path = os.environ.get("DISTLOCK_PROGRAM")
    assert path, "DISTLOCK_PROGRAM does not say where the program distlock is"
    return path


def founded(directory: pathlib.Path, size: int) -> Iterator[Group]:
    group = Group(directory, size)
    try:
        yield group
    finally:
        group.end()


@pytest.fixture(scope="session")
def shop() -> Iterator[Group]:
    """Two members whose agents run all the time: no test ends or stops them."""
    with tempfile.TemporaryDirectory(prefix="dl") as path:
        for group in founded(pathlib.Path(path), 2):
            group.start(1, 2)
            yield group


@pytest.fixture
def pair(directory: pathlib.Path) -> Iterator[Group]:
    """Two members, whose agents run."""
    for group in founded(directory, 2):
        group.start(1, 2)
        yield group


@pytest.fixture
def trio(directory: pathlib.Path) -> Iterator[Group]:
    """Three members, of which the agents of the first two run: the group begins with the third."""
    for group in founded(directory, 3):
        group.start(1, 2)
        yield group


class Script:
    """A Python program, in a process of its own. Its lines are read one by one."""

    def __init__(self, text: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", text, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """Its next line. A test that waits in vain is ended by its own alarm."""
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def end(self, number: int) -> int:
        """Sends it this signal; how it ended, and what it said at last."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Starts programs, which end with the test."""
    scripts: list[Script] = []

    def start(text: str, *arguments: object) -> Script:
        scripts.append(Script(text, *arguments))
        return scripts[-1]

    yield start
    for one in scripts:
        one.close()


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Ends a test that waits for ever."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError("the test takes too long")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(3 * PATIENCE))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
