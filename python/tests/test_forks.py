"""Forks: a child opens its agent anew, and touches nothing of its parent's."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pathlib
import threading
import time
import traceback
from collections.abc import Callable

import distlock
import pytest
from conftest import PATIENCE, Group
from distlock import Agent, State


def in_child(body: Callable[[], object]) -> None:
    """Does `body` in a forked child, and sees that it ends well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_holds_nothing_of_its_parents(agents: list[Agent]) -> None:
    lock = agents[0].lock("x", timeout=0)
    with lock as guard:

        def child() -> None:
            assert (guard.state, guard.valid, guard.lapses) == (State.LOST, False, 0)
            for refused in (guard.check, guard.release, guard.abandon):
                with pytest.raises(distlock.LockLost):
                    refused()
            assert lock.guard is None and not lock.locked()
            with pytest.raises(RuntimeError):
                lock.release()
            with pytest.raises(distlock.Timeout):
                with lock:
                    pytest.fail("two hold it")
            with agents[0].lock("y"):
                pass

        in_child(child)
        guard.check()
        assert not agents[1].lock("x").acquire(blocking=False)
    with agents[1].lock("x", timeout=0):
        pass


def test_a_guard_says_whose_it_is(agents: list[Agent]) -> None:
    lock = agents[0].lock("x")
    lock.acquire()
    guard = lock.guard
    assert guard is not None

    def child() -> None:
        with pytest.raises(distlock.Forked, match="belongs to the parent"):
            guard.check()
        with pytest.raises(distlock.Forked, match="belongs to the parent"):
            guard.release()

    in_child(child)
    guard.check()


def test_a_child_that_leaves_its_parents_block_is_told(agents: list[Agent]) -> None:
    parent = os.getpid()
    code = 1
    try:
        with agents[0].lock("x"):
            child = os.fork()
    except distlock.Forked:
        assert os.getpid() != parent
        code = 0
    finally:
        if os.getpid() != parent:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_opens_its_agent_anew(agents: list[Agent]) -> None:
    lock = agents[0].lock("x", timeout=PATIENCE)
    licences = agents[0].semaphore("licences", 2)

    @agents[0].locked("job")
    def job() -> int:
        return os.getpid()

    def child() -> None:
        with lock as guard, licences:
            guard.check()
            (held,) = [it for it in agents[0].status()["locks"] if it["name"] == "x"]
            assert held["holders"][0]["pid"] == os.getpid()
            assert job() == os.getpid()
            in_child(
                lambda: pytest.raises(distlock.Timeout, agents[0].lock("x", timeout=0).__enter__)
            )
        agents[0].close()

    in_child(child)
    # What the child has closed was its own.
    with lock, licences:
        assert job() == os.getpid()


def test_a_child_opens_its_agent_whatever_its_parent_was_opening(agents: list[Agent]) -> None:
    # As if another thread of the parent were opening one, which itself is a forked child.
    with agents[0]._opening:
        in_child(agents[0].status)


def test_a_child_of_a_closed_agent_has_none(agents: list[Agent]) -> None:
    agents[0].close()
    in_child(lambda: pytest.raises(distlock.Closed, agents[0].status))


def enter(lock: distlock.Lock, path: str) -> None:
    with lock:
        with open(path, "a") as file:
            file.write(f"in {os.getpid()}\n")
            file.flush()
            time.sleep(0.02)
            file.write(f"out {os.getpid()}\n")


def test_processes_of_multiprocessing_exclude_each_other(
    agents: list[Agent], directory: pathlib.Path
) -> None:
    context = multiprocessing.get_context("fork")
    lock, path = agents[0].lock("x", timeout=PATIENCE), directory / "log"
    with lock:
        processes = [context.Process(target=enter, args=(lock, str(path))) for _ in range(5)]
        for process in processes:
            process.start()
        time.sleep(0.1)
        assert not path.exists()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    lines = path.read_text().split("\n")[:-1]
    assert len(lines) == 10
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert begin.replace("in", "out") == end


def test_a_child_is_well_whatever_threads_of_its_parent_did(agents: list[Agent]) -> None:
    """They wait, enter, call back and run event loops while the main thread forks."""
    is_over = threading.Event()

    def contend(number: int) -> None:
        lock = agents[number % 2].lock(f"of parent {number % 3}", timeout=PATIENCE)
        while not is_over.is_set():
            with lock as guard:
                guard.on_loss(print)

    async def contend_in_tasks() -> None:
        lock = agents[0].lock("of parent 0", timeout=PATIENCE)
        while not is_over.is_set():
            async with lock:
                await asyncio.sleep(0)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(5)]
    threads.append(threading.Thread(target=lambda: asyncio.run(contend_in_tasks())))
    for thread in threads:
        thread.start()

    def child() -> None:
        lock = agents[0].lock(f"of {os.getpid()}", timeout=PATIENCE)

        async def in_task() -> None:
            async with lock as guard:
                guard.on_loss(print)

        def often() -> None:
            for _ in range(5):
                with lock:
                    pass

        mine = [threading.Thread(target=often) for _ in range(3)]
        for thread in mine:
            thread.start()
        asyncio.run(in_task())
        for thread in mine:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    try:
        for _ in range(40):
            in_child(child)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE)


def test_a_child_of_a_client_is_another_client(shop: Group) -> None:
    lock = shop.client(1).lock("x", timeout=PATIENCE)
    other = shop.client(2).lock("x", timeout=0.1)
    with lock as guard:

        def child() -> None:
            with pytest.raises(distlock.Forked):
                guard.check()
            assert not lock.acquire(timeout=0.1)

        in_child(child)
        guard.check()
        assert not other.acquire()

    def enters() -> None:
        with lock as guard:
            guard.check()

    in_child(enters)
    with lock:
        pass


def test_a_child_of_a_member_cannot_be_that_member(trio: Group) -> None:
    agent = trio.member(3)
    lock = agent.lock("x", timeout=PATIENCE)
    with lock as guard:
        in_child(lambda: pytest.raises(distlock.OpenError, agent.status))
        guard.check()
