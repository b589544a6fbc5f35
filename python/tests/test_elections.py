"""Elections."""

from __future__ import annotations

import asyncio
import threading

import distlock
import pytest
from conftest import PATIENCE, Group, eventually
from distlock import Agent, Leader, Leadership


def test_one_leads_and_others_know_it(shop: Group) -> None:
    here, there = (shop.client(member).election("nightly") for member in (1, 2))
    told: list[Leader | None] = []

    def observe() -> None:
        for leader in there.observe():
            told.append(leader)

    agent = there._agent
    observer = threading.Thread(target=observe)
    observer.start()
    with here.campaign(timeout=PATIENCE) as leadership:
        assert isinstance(leadership, Leadership)
        leader = Leader(1, leadership.fence)
        eventually("the leader is told", lambda: told and told[-1] == leader)
        with pytest.raises(distlock.Timeout):
            with there.campaign(timeout=0.1):
                pytest.fail("two lead")
        campaign = there.campaign()
        assert not campaign.acquire(blocking=False)
        leadership.resign()
    eventually("nobody leads", lambda: told[-1] is None)
    assert campaign.acquire(timeout=PATIENCE)
    eventually("the other leads", lambda: told[-1] is not None and told[-1].member == 2)
    campaign.release()
    agent.close()
    observer.join(PATIENCE)
    assert not observer.is_alive()


def test_tasks_lead_and_observe(shop: Group) -> None:
    here, there = (shop.client(member).election("nightly") for member in (1, 2))

    async def main() -> None:
        leaders = there.observe()
        assert await anext(leaders) is None
        async with here.campaign(timeout=PATIENCE) as leadership:
            async with asyncio.timeout(PATIENCE):
                async for leader in leaders:
                    if leader is not None:
                        break
            assert leader == Leader(1, leadership.fence)
            with pytest.raises(distlock.Timeout):
                async with there.campaign(timeout=0.1):
                    pytest.fail("two lead")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), there.campaign():
                    pytest.fail("two lead")
            # A look that is cancelled misses nothing.
            waits = asyncio.ensure_future(anext(leaders))
            await asyncio.sleep(0.05)
            waits.cancel()
        async with asyncio.timeout(PATIENCE):
            while await anext(leaders) is not None:
                pass
        there._agent.close()
        assert [leader async for leader in leaders] in ([], [None])

    asyncio.run(main())


def test_the_local_group_elects_and_tells_nobody(agents: list[Agent]) -> None:
    here, there = (agent.election("nightly") for agent in agents)
    with here.campaign():
        assert list(there.observe()) == []
        with pytest.raises(distlock.Timeout):
            with there.campaign(timeout=0.05):
                pytest.fail("two lead")
    with there.campaign(timeout=0):
        assert not agents[0].lock("nightly").acquire(blocking=False)
    with pytest.raises(distlock.InvalidLock, match="kernel decides"):
        agents[0].election("nightly", algorithm="bully")
