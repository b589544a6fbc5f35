"""Processes that are killed, stopped, or keep their interpreter busy."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import time
from collections.abc import Callable

import distlock
import pytest
from conftest import LEASE, PATIENCE, Group, Script, eventually, keep_the_interpreter, program
from distlock import Agent, PreviousOwner, State

HOLDER = """
import sys, distlock
how, what = sys.argv[1:]
agent = distlock.Agent(**{how: what})
with agent.lock("x") as guard:
    print("held", guard.fence)
    sys.stdin.readline()
print("released")
sys.stdin.readline()
"""


def fence_of(script: Script) -> int:
    word, fence = script.line().split()
    assert word == "held"
    return int(fence)


def test_the_lock_of_a_killed_process_is_free(
    directory: pathlib.Path, script: Callable[..., Script]
) -> None:
    holder = script(HOLDER, "directory", directory / "local")
    fence = fence_of(holder)
    lock = Agent(directory=directory / "local").lock("x", timeout=PATIENCE)
    assert not lock.acquire(blocking=False)
    holder.end(signal.SIGKILL)
    with lock as guard:
        assert guard.fence > fence
        assert guard.previous_owner is PreviousOwner.ABANDONED


def test_a_stopped_process_keeps_its_local_lock(
    directory: pathlib.Path, script: Callable[..., Script]
) -> None:
    holder = script(HOLDER, "directory", directory / "local")
    fence_of(holder)
    holder.process.send_signal(signal.SIGSTOP)
    lock = Agent(directory=directory / "local").lock("x", timeout=0.5)
    with pytest.raises(distlock.Timeout):
        with lock:
            pytest.fail("two hold it")
    holder.process.send_signal(signal.SIGCONT)
    holder.process.communicate("\n\n", timeout=PATIENCE)
    with lock:
        pass


def test_the_lock_of_a_killed_client_is_free(shop: Group, script: Callable[..., Script]) -> None:
    holder = script(HOLDER, "socket", shop.socket(1))
    fence = fence_of(holder)
    lock = shop.client(2).lock("x", timeout=PATIENCE)
    assert not lock.acquire(timeout=0.1)
    holder.end(signal.SIGKILL)
    with lock as guard:
        assert guard.fence > fence
        assert guard.previous_owner is PreviousOwner.ABANDONED


def test_a_client_whose_agent_stands_still_loses_its_lock(trio: Group) -> None:
    trio.start(3)
    lost: list[str] = []
    with trio.client(2).lock("x", timeout=PATIENCE):
        pass
    with pytest.raises(distlock.LockLost) as error:
        with trio.client(1).lock("x", timeout=PATIENCE) as guard:
            guard.on_loss(lost.append)
            assert guard.remaining is not None and 0 < guard.remaining <= LEASE
            trio.signal(1, signal.SIGSTOP)
            eventually("the lease has expired", lambda: guard.state is State.SUSPENDED)
            with pytest.raises(distlock.LockLost, match="lease has expired"):
                guard.check()
            with trio.client(2).lock("x", timeout=PATIENCE) as other:
                assert other.fence > guard.fence
            trio.signal(1, signal.SIGCONT)
            eventually("the loss is told", lambda: lost)
            assert guard.state is State.LOST
    assert "another may have been inside since" in str(error.value)
    assert lost == ["revoked"]


@pytest.mark.parametrize("way", ["client", "member"])
def test_a_busy_interpreter_keeps_its_lease(trio: Group, way: str) -> None:
    """Its agent thread, or its host's agent, renews the lease without the GIL."""
    if way == "client":
        trio.start(3)
    agent = trio.client(1) if way == "client" else trio.member(3)
    command = ["--conflict-exit-code", "9", "x", "true"]
    environment = {"DISTLOCK_SOCKET": str(trio.socket(2))}
    with agent.lock("x", timeout=PATIENCE) as guard:
        # It stops waiting long after the lease of one that stands still were over.
        other = subprocess.Popen([program(), "run", "-w", "2.5", *command], env=environment)
        keep_the_interpreter(3 * LEASE)
        assert guard.valid and guard.lapses == 0
        guard.check()
        assert other.wait(PATIENCE) == 9
        assert guard.valid
    waits = [program(), "run", "-w", str(PATIENCE), *command]
    assert subprocess.call(waits, env=environment) == 0


def test_a_member_that_stands_still_loses_its_lock(
    trio: Group, script: Callable[..., Script]
) -> None:
    """What the test before would see if an agent thread waited for the GIL."""
    holder = script(
        HOLDER.replace(
            "distlock.Agent(**{how: what})", "distlock.Agent(config=how, id=3, state_dir=what)"
        ),
        trio.config,
        trio.directory / "state",
    )
    fence = fence_of(holder)
    holder.process.send_signal(signal.SIGSTOP)
    with trio.client(2).lock("x", timeout=PATIENCE) as guard:
        assert guard.fence > fence
    holder.process.send_signal(signal.SIGCONT)
    _, errors = holder.process.communicate("\n", timeout=PATIENCE)
    assert "LockLost" in errors
    assert holder.process.returncode == 1


def test_without_a_quorum_the_missing_are_named(pair: Group) -> None:
    agent = pair.client(1)
    with agent.lock("x", timeout=PATIENCE):
        pass
    pair.agents[2].kill()
    eventually("there is no quorum", lambda: not agent.status()["quorum"]["ok"])
    for timeout in (None, 0.2):
        with pytest.raises(
            distlock.NoQuorum, match="member 2 is silent; see that it runs"
        ) as error:
            with agent.lock("x", timeout=timeout):
                pytest.fail("it is granted without a majority")
        assert error.value.missing == [2]


def test_an_agent_that_ends_is_told_of(pair: Group) -> None:
    lock = pair.client(1).lock("x", timeout=PATIENCE)
    with lock:
        pass
    pair.agents[1].kill()
    pair.agents[1].wait()
    with pytest.raises(distlock.Disconnected, match="open another"):
        while True:
            with lock:
                time.sleep(0.01)
