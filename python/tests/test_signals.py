"""Signals, of which Ctrl-C is one, while a thread waits."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

import distlock
import pytest
from conftest import PATIENCE, Group, Script, eventually
from distlock import Agent

WAITER = """
import sys, distlock
agent = distlock.Agent(directory=sys.argv[1])
lock = agent.lock("x")
print("asks")
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted", lock.locked(), lock.guard)
    sys.stdin.readline()
    with lock:
        print("held")
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "wait", ["with lock: pass", "lock.acquire()", "lock.acquire(timeout=1000)"]
)
def test_ctrl_c_ends_a_wait(
    directory: pathlib.Path, script: Callable[..., Script], wait: str
) -> None:
    agent = Agent(directory=directory / "local")
    with agent.lock("x"):
        waiter = script(WAITER.format(wait=wait), directory / "local")
        assert waiter.line() == "asks"

        def waiters() -> int:
            return len(agent.status()["locks"][0]["waiters"])

        eventually("it waits", waiters)
        began = time.monotonic()
        waiter.process.send_signal(signal.SIGINT)
        assert waiter.line() == "interrupted False None"
        # A slice of 0.1 seconds; the rest is for a busy machine.
        assert time.monotonic() - began < 2
        # It waits no more, though its process and its lock are there.
        assert waiters() == 0
    with agent.lock("x", timeout=0):
        pass
    assert waiter.process.stdin is not None
    waiter.process.stdin.write("\n")
    waiter.process.stdin.flush()
    assert waiter.line() == "held"


@contextlib.contextmanager
def handled(handler: Callable[[int, object], object]) -> Iterator[None]:
    signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        # One may come late.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def send_to_main_thread(times: int, pause: float) -> threading.Thread:
    def send() -> None:
        for _ in range(times):
            time.sleep(pause)
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_signal_that_is_handled_costs_no_place(agents: list[Agent]) -> None:
    """The first that asks is the first that is served, whatever it handles meanwhile."""
    handled_signals: list[int] = []
    order: list[str] = []

    def waiters() -> int:
        return len(agents[1].status()["locks"][0]["waiters"])

    def hold() -> None:
        with agents[1].lock("x"):
            is_held.set()
            # Of the threads of an agent the status shows the first only: the second asks meanwhile.
            eventually("one waits", lambda: waiters() == 1)
            eventually("signals were handled", lambda: len(handled_signals) >= 3)

    def second() -> None:
        eventually("the first waits", lambda: waiters() == 1)
        with agents[0].lock("x"):
            order.append("second")

    is_held = threading.Event()
    with handled(lambda number, frame: handled_signals.append(number)):
        threads = [threading.Thread(target=target) for target in (hold, second)]
        threads[0].start()
        is_held.wait(PATIENCE)
        threads[1].start()
        sender = send_to_main_thread(5, 0.1)
        with agents[0].lock("x"):
            order.append("first")
        for thread in [sender, *threads]:
            thread.join(PATIENCE)
    assert order == ["first", "second"]


class Interrupted(Exception):
    """What the handler raises."""


def test_an_interrupted_wait_holds_nothing(agents: list[Agent]) -> None:
    """Whenever the signal comes: before the grant, with it, and in the block."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    lock, other = (agent.lock("x") for agent in agents)
    interrupted = 0
    with handled(interrupt):
        for step in range(60):
            assert other.acquire(timeout=PATIENCE)
            timers = [
                threading.Timer(0.02, other.release),
                threading.Timer(
                    0.017 + 0.0001 * step,
                    signal.pthread_kill,
                    (threading.main_thread().ident, signal.SIGUSR1),
                ),
            ]
            for timer in timers:
                timer.start()
            try:
                with lock:
                    time.sleep(0.2)
            except Interrupted:
                interrupted += 1
            for timer in timers:
                timer.join()
            assert not lock.locked() and lock.guard is None, step
            with other:
                pass
    assert interrupted == 60


def test_ctrl_c_ends_the_observation_of_leaders(shop: Group, script: Callable[..., Script]) -> None:
    observer = script(
        """
import sys, distlock
try:
    for leader in distlock.Agent(socket=sys.argv[1]).election("x").observe():
        print("leads", leader)
except KeyboardInterrupt:
    print("interrupted")
""",
        shop.socket(1),
    )
    assert observer.line() == "leads None"
    observer.process.send_signal(signal.SIGINT)
    assert observer.line() == "interrupted"


def test_a_daemon_thread_that_waits_does_not_hinder_the_end(
    directory: pathlib.Path, script: Callable[..., Script]
) -> None:
    with Agent(directory=directory / "local").lock("x"):
        waiter = script(
            """
import sys, threading, time, distlock
lock = distlock.Agent(directory=sys.argv[1]).lock("x")
for _ in range(3):
    threading.Thread(target=lock.acquire, daemon=True).start()
time.sleep(0.3)
print("ends")
""",
            directory / "local",
        )
        assert waiter.line() == "ends"
        _, errors = waiter.process.communicate(timeout=PATIENCE)
        assert (waiter.process.returncode, errors) == (0, "")
    assert distlock.Agent(directory=directory / "local").lock("x").acquire(timeout=PATIENCE)
