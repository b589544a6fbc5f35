"""What type checkers make of the package: `mypy --strict` takes this file, and tests say what it
refuses."""

from __future__ import annotations

import asyncio
from typing import assert_type

import distlock


def threads() -> None:
    with distlock.Agent(local=True) as agent:
        assert_type(agent, distlock.Agent)
        lock = agent.lock("printer", timeout=10)
        with lock as guard:
            assert_type(guard, distlock.Guard)
            assert_type(guard.fence, int)
            assert_type(guard.state, distlock.State)
            assert_type(guard.valid, bool)
            assert_type(guard.previous_owner, distlock.PreviousOwner)
            guard.on_loss(lambda reason: print(reason.upper()))
        assert_type(lock.acquire(blocking=False), bool)
        assert_type(lock.guard, distlock.Guard | None)
        with agent.election("nightly").campaign() as leadership:
            assert_type(leadership, distlock.Leadership)
            leadership.resign()
        for leader in agent.election("nightly").observe():
            assert_type(leader, distlock.Leader | None)
        with distlock.FileLock("x.lock").acquire() as held:
            assert_type(held, distlock.FileLock)


agent = distlock.Agent(local=True)


@agent.locked("job")
def job(number: int, *, fast: bool = False) -> str:
    return str(number)


@agent.locked("job")
async def async_job(number: int) -> str:
    return str(number)


async def tasks() -> None:
    assert_type(job(1, fast=True), str)
    assert_type(await async_job(1), str)
    async with agent.semaphore("licences", 4) as guard:
        assert_type(guard, distlock.Guard)
        assert_type(await guard.invalid(), distlock.State)
    assert_type(await agent.lock("printer").acquire_async(), distlock.Guard)
    async for leader in agent.election("nightly").observe():
        assert_type(leader, distlock.Leader | None)


def refused() -> None:
    job("one")  # type: ignore[arg-type]
    agent.lock(1)  # type: ignore[arg-type]
    agent.lock("x", 10)  # type: ignore[call-arg]
    _ = agent.lock("x").guard.fence  # type: ignore[union-attr]


if __name__ == "__main__":
    threads()
    asyncio.run(tasks())
