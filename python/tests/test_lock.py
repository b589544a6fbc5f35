"""Locks and semaphores of threads."""

from __future__ import annotations

import gc
import pathlib
import threading
import time

import distlock
import pytest
from conftest import PATIENCE, eventually
from distlock import Agent, PreviousOwner, State


def test_a_block_holds_the_lock(agents: list[Agent]) -> None:
    here, there = (agent.lock("x") for agent in agents)
    with here as guard:
        assert (guard.name, guard.state, guard.valid) == ("x", State.VALID, True)
        assert here.guard is guard and here.locked() and not there.locked()
        assert guard.remaining is None and guard.lapses == 0
        assert agents[0].lease is None
        guard.check()
        assert not there.acquire(blocking=False)
        first = guard.fence
    assert not here.locked() and here.guard is None
    assert (guard.state, guard.valid, guard.remaining) == (State.LOST, False, 0.0)
    with pytest.raises(distlock.LockLost, match="released before"):
        guard.check()
    guard.release()
    with there as guard:
        assert guard.fence > first
        assert "'x'" in repr(guard) and "valid" in repr(guard)


def test_a_block_ends_with_its_own_error(agents: list[Agent]) -> None:
    here, there = (agent.lock("x", timeout=0.2) for agent in agents)
    with pytest.raises(KeyError):
        with here:
            raise KeyError
    with there:
        pass
    # Also if the lock is lost as well.
    with pytest.raises(KeyError):
        with here:
            agents[0].close()
            raise KeyError


def test_a_block_whose_lock_was_lost_says_so(agents: list[Agent]) -> None:
    here = agents[0].lock("x")
    with pytest.raises(distlock.LockLost, match="closed"):
        with here as guard:
            agents[0].close()
            assert guard.state is State.LOST
            with pytest.raises(distlock.LockLost, match="was lost"):
                guard.check()
    for refused in (here.acquire, agents[0].status, lambda: agents[0].lock("x")):
        with pytest.raises(distlock.Closed, match="open another"):
            refused()
    with agents[1].lock("x", timeout=0):
        pass


def test_a_guard_released_in_its_block_ends_it_well(agents: list[Agent]) -> None:
    with agents[0].lock("x") as guard:
        guard.release()
        with agents[1].lock("x", timeout=0):
            pass


def test_acquire_and_release_are_those_of_a_lock(agents: list[Agent]) -> None:
    here, there = (agent.lock("x") for agent in agents)
    assert here.acquire() is True
    for taken in (
        there.acquire(False),
        there.acquire(blocking=False),
        there.acquire(timeout=0),
        there.acquire(True, 0.05),
    ):
        assert taken is False
    here.release()
    assert there.acquire(timeout=PATIENCE)
    there.release()
    with pytest.raises(RuntimeError):
        there.release()
    # The same mistakes as with `threading.Lock`.
    for lock in (here, threading.Lock()):
        with pytest.raises(ValueError):
            lock.acquire(False, 1)
        with pytest.raises(ValueError):
            lock.acquire(timeout=-2)
        with pytest.raises(OverflowError):
            lock.acquire(timeout=1e12)
    for timeout in (-2.0, float("nan")):
        with pytest.raises(ValueError):
            agents[0].lock("x", timeout=timeout)


def test_another_thread_may_release(agents: list[Agent]) -> None:
    here, there = (agent.lock("x") for agent in agents)
    here.acquire()
    thread = threading.Thread(target=here.release)
    thread.start()
    thread.join()
    assert there.acquire(timeout=PATIENCE)


def test_a_timeout_is_a_timeout_error(agents: list[Agent]) -> None:
    with agents[0].lock("x"):
        began = time.monotonic()
        with pytest.raises(TimeoutError) as late:
            with agents[1].lock("x", timeout=0.25):
                pytest.fail("two hold it")
        assert 0.24 < time.monotonic() - began < PATIENCE
        assert isinstance(late.value, distlock.Timeout)
        assert isinstance(late.value, distlock.Error)
        assert str(late.value) == "the lock was not free in time"
        # Nothing of a wait in vain is kept.
        lock = agents[1].lock("x", timeout=0)
        assert not lock.acquire() and not lock.acquire(blocking=False)
        assert not lock._held.of


def test_a_lock_is_not_reentrant(agents: list[Agent]) -> None:
    lock = agents[0].lock("x")
    with lock:
        with pytest.raises(distlock.Deadlock, match="unlock it first"):
            with lock:
                pytest.fail("it is reentrant")
        assert lock.locked()
    assert not lock.locked()


def test_threads_exclude_each_other_by_one_object(agents: list[Agent]) -> None:
    lock = agents[0].lock("x", timeout=PATIENCE)
    inside, most, entries = 0, 0, 0

    def enter() -> None:
        nonlocal inside, most, entries
        for _ in range(50):
            with lock as guard:
                inside += 1
                most = max(most, inside)
                entries += 1
                assert guard.valid and lock.guard is guard
                time.sleep(0.0001)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (inside, most, entries) == (0, 1, 300)
    assert not lock.locked()


def test_a_thread_that_waits_lets_others_run(agents: list[Agent]) -> None:
    with agents[0].lock("x"):
        waits = threading.Thread(target=lambda: agents[1].lock("x").acquire())
        waits.start()
        eventually("it waits", lambda: agents[0].status()["locks"][0]["waiters"])
        began, turns = time.monotonic(), 0
        while time.monotonic() - began < 0.3:
            turns += 1
        assert turns > 1000
    waits.join(PATIENCE)
    assert not waits.is_alive()


def test_shared_holders_exclude_exclusive_ones(agents: list[Agent]) -> None:
    readers = [agent.lock("x", shared=True) for agent in agents]
    assert readers[0].shared
    writer = agents[0].lock("x", timeout=0)
    with readers[0], readers[1]:
        thread = threading.Thread(target=lambda: refused.append(writer.acquire(timeout=0)))
        refused: list[bool] = []
        thread.start()
        thread.join()
        assert refused == [False]
    with writer:
        assert not readers[1].acquire(blocking=False)


def test_a_semaphore_has_as_many_holders_as_permits(agents: list[Agent]) -> None:
    here, there = (agent.semaphore("licences", 2, timeout=0) for agent in agents)
    assert here.permits == 2
    with here as first, there as second:
        assert first.fence != second.fence
        assert not there.acquire(blocking=False)
    # One thread may hold several of one object.
    with here as first, here as second:
        assert here.guard is second
        second.release()
        with there:
            pass
        assert first.valid
    with pytest.raises(distlock.InvalidLock, match="2 permits"):
        agents[0].semaphore("licences", 3)
    with pytest.raises(distlock.InvalidLock, match="how many permits"):
        agents[0].semaphore("others")
    with pytest.raises(ValueError):
        agents[0].semaphore("others", 0)


def test_a_guard_that_nobody_refers_to_is_released(agents: list[Agent]) -> None:
    lock = agents[0].lock("x")
    lock.acquire()
    del lock
    gc.collect()
    with agents[1].lock("x", timeout=0):
        pass


def test_an_abandoned_lock_tells_its_next_holder(agents: list[Agent]) -> None:
    here, there = (agent.lock("x") for agent in agents)
    with here as guard:
        assert guard.previous_owner is PreviousOwner.CLEAN
        guard.abandon()
        with pytest.raises(distlock.LockLost):
            guard.abandon()
    with there as guard:
        assert guard.previous_owner is PreviousOwner.ABANDONED
    with here as guard:
        assert guard.previous_owner is PreviousOwner.CLEAN


def test_a_loss_is_told_to_callbacks(agents: list[Agent]) -> None:
    told: list[tuple[str, int]] = []

    def remember(reason: str) -> None:
        told.append((reason, threading.get_ident()))

    with agents[0].lock("x") as guard:
        guard.on_loss(remember)
    agents[0].lock("x").acquire()
    lock = agents[0].lock("y")
    lock.acquire()
    assert lock.guard is not None
    lock.guard.on_loss(remember)
    agents[0].close()
    eventually("it is told", lambda: told)
    assert [reason for reason, _ in told] == ["closed"]
    assert told[0][1] != threading.get_ident()
    # One that comes late is told at once.
    lock.guard.on_loss(remember)
    assert len(told) == 2


def test_a_function_holds_the_lock_when_it_is_called(agents: list[Agent]) -> None:
    @agents[0].locked("nightly", timeout=0)
    def job(number: int, *, more: int = 0) -> int:
        """Does it."""
        assert not agents[1].lock("nightly").acquire(blocking=False)
        return number + more

    assert job(1, more=2) == 3
    assert job.__name__ == "job" and job.__doc__ == "Does it."
    with agents[1].lock("nightly"):
        with pytest.raises(distlock.Timeout):
            job(1)
    with pytest.raises(TypeError, match="generator"):

        @agents[0].locked("nightly")
        def numbers() -> object:
            yield 1


def test_a_generator_may_be_ended_by_another_thread(agents: list[Agent]) -> None:
    def numbers() -> object:
        with agents[0].lock("x"):
            yield 1

    generator = numbers()
    assert next(generator) == 1  # type: ignore[call-overload]
    thread = threading.Thread(target=generator.close)  # type: ignore[attr-defined]
    thread.start()
    thread.join()
    with agents[1].lock("x", timeout=0):
        pass


def test_the_status_tells_holders(agents: list[Agent]) -> None:
    with agents[0].lock("x", command="print a.ps") as guard:
        status = agents[1].status()
    assert (status["schema"], status["group"]) == (1, "local")
    (lock,) = status["locks"]
    assert (lock["name"], lock["algorithm"]) == ("x", "kernel")
    (holder,) = lock["holders"]
    assert (holder["command"], holder["fence"]) == ("print a.ps", guard.fence)


@pytest.mark.parametrize(
    "name", ["", "a\0b", b"\0", "x" * 256], ids=["empty", "nul", "bytes", "long"]
)
def test_an_invalid_name_is_refused(agents: list[Agent], name: str | bytes) -> None:
    for opens in (agents[0].lock, agents[0].election):
        with pytest.raises(distlock.InvalidLock):
            opens(name)
    with pytest.raises(ValueError):
        agents[0].semaphore(name, 1)


def test_a_name_may_be_any_bytes(agents: list[Agent]) -> None:
    lock = agents[0].lock(b"\xff")
    with lock as guard:
        assert guard.name == r"\xff"
        assert not agents[1].lock(b"\xff").acquire(blocking=False)
        assert agents[1].lock("ÿ").acquire(blocking=False)


def test_what_cannot_be_opened_says_why(directory: pathlib.Path) -> None:
    with pytest.raises(distlock.Unreachable, match="start `distlock agent`") as refused:
        Agent(socket=directory / "none.sock")
    assert isinstance(refused.value, ConnectionError)
    assert isinstance(refused.value, distlock.OpenError)
    with pytest.raises(distlock.InvalidConfig):
        Agent(socket=directory / "none.sock", local=True)
    with pytest.raises(distlock.InvalidConfig):
        Agent(config=directory / "none.toml", id=1)
    with pytest.raises(ValueError):
        Agent(config=directory / "none.toml", id=0)
    shared = directory / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        Agent(directory=shared)
    with pytest.raises(distlock.InvalidLock, match="no algorithm"):
        Agent(directory=directory / "local").lock("x", algorithm="manager")
    with pytest.raises(distlock.InvalidLock):
        Agent(directory=directory / "local").lock("x", algorithm="unheard of")
