"""A task whose lock is lost, or whose lease expires, is cancelled as by `asyncio.timeout`."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import distlock
import pytest
from conftest import LEASE, PATIENCE, Group, bounded, keep_the_interpreter
from distlock import Agent, State, _wakeups


def test_a_lost_lock_cancels_its_task(agents: list[Agent]) -> None:
    reached = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, agents[0].close)
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(distlock.LockLost, match="lost before the block ended") as error:
            async with agents[0].lock("x") as guard:
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    reached.append(guard.state)
        assert isinstance(error.value.__cause__, asyncio.CancelledError)
        assert task.cancelling() == 0
        await asyncio.sleep(0.01)

    bounded(main())
    assert reached == [State.LOST]


def test_a_lost_lock_is_told_of_without_an_await(agents: list[Agent]) -> None:
    async def main() -> None:
        with pytest.raises(distlock.LockLost):
            async with agents[0].lock("x"):
                agents[0].close()
        # Nothing of it comes after the block.
        await asyncio.sleep(0.01)

    bounded(main())


def test_a_lock_that_is_lost_as_its_block_begins(
    agents: list[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task runs then: it is not cancelled at an await after the block."""

    async def main() -> None:
        for awaits in (False, True):
            agent = distlock.Agent(directory=directory)
            lock = agent.lock("x")
            granted = lock._granted

            async def lost(
                limit: float | None, agent: Agent = agent, granted: Any = granted
            ) -> Any:
                guard = await granted(limit)
                agent.close()
                return guard

            monkeypatch.setattr(lock, "_granted", lost)
            with pytest.raises(distlock.LockLost):
                async with lock:
                    if awaits:
                        await asyncio.sleep(PATIENCE)
            await asyncio.sleep(0.01)
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0

    directory = agents[0]._open.keywords["directory"]
    bounded(main())


def test_errors_of_the_block_are_told_in_place_of_the_loss(agents: list[Agent]) -> None:
    async def main() -> None:
        with pytest.raises(KeyError):
            async with agents[0].lock("x"):
                agents[0].close()
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    raise KeyError from None
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    bounded(main())


def test_a_block_that_swallows_its_cancellation_is_told(agents: list[Agent]) -> None:
    async def main() -> None:
        with pytest.raises(distlock.LockLost):
            async with agents[0].lock("x"):
                asyncio.get_running_loop().call_soon(agents[0].close)
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    pass
                await asyncio.sleep(0.01)

    bounded(main())


def test_who_cancels_the_task_as_well_is_obeyed(agents: list[Agent]) -> None:
    """A cancellation from outside, and a timeout around the block, are no loss."""

    async def use() -> None:
        async with agents[0].lock("x"):
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        task = asyncio.create_task(use())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        with pytest.raises(TimeoutError) as late:
            async with asyncio.timeout(0.05):
                await use()
        assert not isinstance(late.value, distlock.Error)

        # Both at once: the loop has heard of the loss, and the task has not run since.
        task = asyncio.create_task(use())
        await asyncio.sleep(0.05)
        agents[0].close()
        _wakeups.loop_hub().on_readable()
        assert task.cancelling() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    bounded(main())


def test_a_loss_within_a_timeout_and_a_group_is_a_loss(agents: list[Agent]) -> None:
    async def sleep() -> None:
        await asyncio.sleep(PATIENCE)

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, agents[0].close)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(distlock.LockLost):
                async with agents[0].lock("x"):
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(sleep())
                        await sleep()

    bounded(main())


def test_a_guard_is_waited_on(agents: list[Agent]) -> None:
    async def main() -> None:
        guard = await agents[0].lock("x").acquire_async()
        waits = [asyncio.ensure_future(guard.lost()), asyncio.ensure_future(guard.invalid())]
        await asyncio.sleep(0.05)
        assert not any(wait.done() for wait in waits)
        guard.release()
        assert await asyncio.gather(*waits) == [None, State.LOST]
        assert (await guard.lost(), await guard.invalid()) == (None, State.LOST)
        guard = await agents[0].lock("x").acquire_async()
        agents[0].close()
        assert (await guard.lost(), await guard.invalid()) == ("closed", State.LOST)

    bounded(main())


def test_an_expired_lease_cancels_its_task(trio: Group) -> None:
    """The others stand still: nobody tells the task that its lease is over."""
    trio.start(3)
    agent = trio.client(1)

    async def main() -> None:
        began = 0.0
        with pytest.raises(distlock.LockLost, match="lease expired") as error:
            async with agent.lock("x", timeout=PATIENCE) as guard:
                await asyncio.sleep(0.5)
                for member in (2, 3):
                    trio.signal(member, signal.SIGSTOP)
                began = time.monotonic()
                await asyncio.sleep(PATIENCE)
        assert isinstance(error.value.__cause__, asyncio.CancelledError)
        assert time.monotonic() - began < PATIENCE / 2
        assert not guard.valid

    bounded(main())


def test_a_busy_interpreter_keeps_the_lock_of_its_task(trio: Group) -> None:
    """Three leases without the loop, or any thread of Python: no lease is lost, and no task
    cancelled."""

    async def main() -> None:
        async with trio.member(3).lock("x", timeout=PATIENCE) as guard:
            keep_the_interpreter(3 * LEASE)
            guard.check()
            assert guard.lapses == 0
            await asyncio.sleep(0.1)
            guard.check()

    bounded(main())
