"""Tasks: each await is cancelled at each point, and nothing stays held."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import distlock
import pytest
from conftest import PATIENCE, Group, bounded, eventually
from distlock import Agent, Guard, Lock, State


def is_free(lock: Lock) -> bool:
    """Whether another finds it free; it looks for a while, as it may just be coming back."""
    if not lock.acquire(timeout=PATIENCE):
        return False
    lock.release()
    return True


def test_a_task_holds_the_lock(agents: list[Agent]) -> None:
    here, there = (agent.lock("x") for agent in agents)

    async def main() -> None:
        async with here as guard:
            assert guard.valid and here.guard is guard and here.locked()
            assert not there.acquire(blocking=False)
            await asyncio.sleep(0)
            with pytest.raises(distlock.Deadlock):
                async with here:
                    pytest.fail("it is reentrant")
        assert guard.state is State.LOST and here.guard is None
        # The same object, of a thread.
        with here, pytest.raises(distlock.Timeout):
            async with agents[1].lock("x", timeout=0.05):
                pytest.fail("two hold it")
        guard = await there.acquire_async()
        with pytest.raises(TimeoutError):
            await here.acquire_async(timeout=0.05)
        await guard.release_async()
        await guard.release_async()
        (await here.acquire_async(timeout=0)).release()

    bounded(main())


def test_tasks_exclude_each_other_by_one_object(agents: list[Agent]) -> None:
    locks = [agent.lock("x") for agent in agents]
    inside, entries = 0, 0

    async def enter(number: int) -> None:
        nonlocal inside, entries
        for _ in range(5):
            async with locks[number % 2] as guard:
                inside += 1
                assert inside == 1 and locks[number % 2].guard is guard
                await asyncio.sleep(0.001)
                inside -= 1
                entries += 1

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(12):
                tasks.create_task(enter(number))

    bounded(main())
    assert entries == 60
    assert all(not lock.locked() and not lock._held.of and not lock._blocks for lock in locks)


def test_any_number_of_loops(agents: list[Agent]) -> None:
    lock = agents[0].lock("x")
    inside, entries = 0, 0

    async def enter() -> None:
        nonlocal inside, entries
        for _ in range(10):
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.0005)
                inside -= 1
                entries += 1

    async def both() -> None:
        await asyncio.gather(enter(), enter())

    threads = [threading.Thread(target=lambda: bounded(both())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert entries == 80
    # What loops leave behind goes with them.
    gc.collect()
    from distlock import _wakeups

    assert len(_wakeups._loop_hubs) == 0


def test_permits_and_functions(agents: list[Agent]) -> None:
    licences = agents[0].semaphore("licences", 2, timeout=0.05)

    @agents[0].locked("job", timeout=0.05)
    async def job(number: int) -> int:
        assert not agents[1].lock("job").acquire(blocking=False)
        await asyncio.sleep(0)
        return number + 1

    async def main() -> None:
        assert await job(1) == 2
        async with licences as first, licences as second:
            assert first.fence != second.fence
            with pytest.raises(distlock.Timeout):
                async with licences:
                    pytest.fail("there are two permits")
        async with agents[1].lock("job"):
            with pytest.raises(distlock.Timeout):
                await job(1)

    bounded(main())


# ---- cancelled at each point ----

Steps = Callable[[], Coroutine[Any, Any, Any]]


class ByHand:
    """Drives a coroutine from await to await, and throws into it at one of them."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        # Its traceback keeps what the coroutine had: that is not to keep the lock.
        self.error: BaseException | None = None

    async def run(self, throw_at: int) -> bool:
        """Whether it got as far as that await."""
        iterator = self.coroutine.__await__()
        try:
            waits = next(iterator)
            for _ in range(throw_at):
                # What it waits for is waited for here, in its place.
                waits._asyncio_future_blocking = False
                await asyncio.wait([waits], timeout=PATIENCE)
                assert waits.done()
                waits = next(iterator)
        except StopIteration as end:
            if isinstance(end.value, Guard):
                await end.value.release_async()
            return False
        waits._asyncio_future_blocking = False
        try:
            iterator.throw(asyncio.CancelledError())
        except asyncio.CancelledError as error:
            self.error = error
            return True
        raise AssertionError("it went on")


def cases(here: Lock) -> dict[str, Steps]:
    async def block() -> None:
        async with here:
            await asyncio.sleep(0.001)

    async def nested() -> None:
        guard = await here.acquire_async()
        try:
            await asyncio.sleep(0.001)
        finally:
            await guard.release_async()

    return {
        "acquire": here.acquire_async,
        "timed": lambda: here.acquire_async(timeout=PATIENCE),
        "block": block,
        "nested": nested,
    }


@pytest.mark.parametrize("case", ["acquire", "timed", "block", "nested"])
@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("way", ["local", "client"])
def test_each_await_is_cancelled_by_hand(
    way: str, contended: bool, case: str, agents: list[Agent], request: pytest.FixtureRequest
) -> None:
    if way == "client":
        shop: Group = request.getfixturevalue("shop")
        agents = [shop.client(1), shop.client(2)]
    here, there = (agent.lock("x", timeout=PATIENCE) for agent in agents)
    with there:
        pass
    points = 0

    async def main() -> None:
        nonlocal points
        for throw_at in range(100):
            held = await there.acquire_async() if contended else None
            if held is not None:
                asyncio.get_running_loop().call_later(0.01, held._native.drop)
            by_hand = ByHand(cases(here)[case]())
            if not await by_hand.run(throw_at):
                break
            points += 1
            assert by_hand.error is not None
            assert not here.locked() and not here._held.of and not here._blocks
            assert await asyncio.to_thread(is_free, there), f"at await {throw_at}"
        else:
            pytest.fail("it never ends")

    bounded(main())
    # One point at least where it waits, and where it works.
    assert points >= contended + (case in ("block", "nested")), points


@pytest.mark.parametrize("way", ["local", "member"])
def test_tasks_are_cancelled_after_each_step_of_the_loop(
    way: str, agents: list[Agent], request: pytest.FixtureRequest
) -> None:
    """With the lock coming free at any of them."""
    if way == "member":
        trio: Group = request.getfixturevalue("trio")
        agents = [trio.member(3), trio.client(2)]
    here, there = (agent.lock("x", timeout=PATIENCE) for agent in agents)
    with there:
        pass
    ended = {"cancelled": 0, "done": 0}

    async def use() -> None:
        async with here as guard:
            guard.check()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def main() -> None:
        for contended in (False, True):
            for steps in range(30):
                held = await there.acquire_async() if contended else None
                task = asyncio.create_task(use())
                for step in range(steps):
                    if held is not None and step == steps // 2:
                        held._native.drop()
                        # So that the grant comes at one of the next steps, or at none of them.
                        time.sleep(0.0005 * (steps % 4))
                    await asyncio.sleep(0)
                task.cancel()
                if held is not None:
                    held._native.drop()
                try:
                    await task
                    ended["done"] += 1
                except asyncio.CancelledError:
                    ended["cancelled"] += 1
                assert not here.locked() and not here._held.of and not here._blocks
                assert await asyncio.to_thread(is_free, there), f"after {steps} steps"

    bounded(main())
    assert ended["cancelled"] >= 10 and sum(ended.values()) == 60, ended


def test_a_task_that_nobody_awaits_leaves_nothing(agents: list[Agent]) -> None:
    """Its loop is closed while it waits, or holds the lock."""
    here, there = (agent.lock("x") for agent in agents)
    for holds in (False, True):
        loop = asyncio.new_event_loop()
        guard = None if holds else loop.run_until_complete(there.acquire_async())

        async def use() -> None:
            async with here:
                await asyncio.sleep(PATIENCE)

        coroutine = use()
        task = loop.create_task(coroutine)
        loop.run_until_complete(asyncio.sleep(0.05))
        assert here.locked() is holds
        loop.close()
        # As when an interpreter ends: the coroutine is closed where it stands.
        coroutine.close()
        if guard is not None:
            guard.release()
        assert is_free(there)
        del task


def test_one_that_waits_is_woken_while_the_loop_is_idle(shop: Group) -> None:
    """A grant comes as a wakeup: the loop looks at nothing meanwhile."""
    here, there = (shop.client(member).lock("x", timeout=PATIENCE) for member in (1, 2))
    with there:
        pass
    polls = 0

    async def main() -> None:
        nonlocal polls
        from distlock import _wakeups

        hub = _wakeups.loop_hub()
        look = hub.on_readable

        def counted() -> None:
            nonlocal polls
            polls += 1
            look()

        asyncio.get_running_loop().add_reader(hub.wakeups.fileno(), counted)
        there.acquire()
        waits = asyncio.ensure_future(here.acquire_async())
        await asyncio.sleep(1)
        assert not waits.done() and polls <= 3, polls
        there.release()
        began = time.monotonic()
        (await waits).release()
        assert time.monotonic() - began < PATIENCE / 2

    bounded(main())


def test_ctrl_c_ends_a_program_of_tasks(agents: list[Agent]) -> None:
    """`asyncio.run` cancels the main task, which gives back what it holds."""
    here, there = (agent.lock("x", timeout=PATIENCE) for agent in agents)

    async def main() -> None:
        async with here:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not here.locked() and is_free(there)
    eventually("the hub goes", lambda: not here._blocks)
