//! One leads at a time.

use crossbeam_channel::Receiver;
use distlock::{DistMutex as _, Election, Fence, Leader};

use crate::bench::{
    Bench, Case, Need, SHORT, WAIT, await_waiters, case, case_of, is_busy, times_out,
};
use crate::jobs::{block_on, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("one leads", one_leads),
        case("who resigns lets another lead", resigns),
        case("a leadership is a lock", is_lock),
        case("a candidacy is withdrawn", withdrawn),
        case("a leader that closes is followed by another", closes),
        case_of("it is told who leads", &[Need::News], told),
        case_of("it is told who leads already", &[Need::News], told_late),
    ]
}

fn elections(bench: &Bench<'_>) -> [Election; 2] {
    let name = bench.name("job");
    bench.agents().map(|agent| agent.election(&name).unwrap())
}

/// Waits until it is told that the one with that fence leads, or nobody does.
#[track_caller]
fn await_leader(news: &Receiver<Option<Leader>>, fence: Option<Fence>) {
    loop {
        let told = news.recv_timeout(WAIT).expect("news in time");
        if told.and_then(|leader| leader.fence) == fence {
            return;
        }
    }
}

fn one_leads(bench: &Bench<'_>) {
    let [here, there] = elections(bench);
    let leads = here.campaign().unwrap();
    assert!(leads.is_held() && leads.fence().is_some());
    assert!(is_busy(there.try_campaign()));
    times_out(|| there.try_campaign_for(SHORT).map(drop));
    assert!(leads.is_held());
    leads.resign().unwrap();
}

fn resigns(bench: &Bench<'_>) {
    let [here, there] = elections(bench);
    let leads = here.campaign().unwrap();
    let fence = leads.fence();
    let stands = there.clone();
    let next = spawn(move || stands.campaign().unwrap());
    await_waiters(bench.one(), &bench.name("job"), 1);
    assert!(next.goes_on());
    leads.resign().unwrap();
    let next = next.get();
    assert!(next.is_held() && next.fence() > fence);
    assert!(is_busy(here.try_campaign()));
    // Dropping it resigns, too.
    drop(next);
    drop(here.try_campaign_for(WAIT).unwrap());
}

fn is_lock(bench: &Bench<'_>) {
    let [here, _] = elections(bench);
    let [_, mutex] = bench.both("job");
    let guard = mutex.lock().unwrap();
    assert!(is_busy(here.try_campaign()));
    guard.unlock().unwrap();
    let leads = here.try_campaign_for(WAIT).unwrap();
    assert!(is_busy(mutex.try_lock()));
    let guard = leads.into_guard();
    assert!(is_busy(mutex.try_lock()));
    guard.unlock().unwrap();
    drop(mutex.try_lock_for(WAIT).unwrap());
}

fn withdrawn(bench: &Bench<'_>) {
    let [here, there] = elections(bench);
    let leads = here.campaign().unwrap();
    let mut stands = there.begin().unwrap();
    assert!(stands.poll().is_pending());
    await_waiters(bench.one(), &bench.name("job"), 1);
    drop(stands);
    await_waiters(bench.one(), &bench.name("job"), 0);
    leads.resign().unwrap();
    drop(here.try_campaign_for(WAIT).unwrap());
    drop(there.try_campaign_for(WAIT).unwrap());
}

fn closes(bench: &Bench<'_>) {
    let spare = bench.spare();
    let [_, there] = elections(bench);
    let leads = spare.agent.election(bench.name("job")).unwrap();
    let leads = leads.campaign().unwrap();
    assert!(is_busy(there.try_campaign()));
    spare.agent.close();
    assert!(!leads.is_held() && leads.resign().is_err());
    drop(there.try_campaign_for(WAIT).unwrap());
}

fn told(bench: &Bench<'_>) {
    let both = elections(bench);
    let news = both.each_ref().map(|election| election.observe());
    for leads in [&both[0], &both[1]] {
        let leads = leads.campaign().unwrap();
        assert!(leads.fence().is_some());
        for news in &news {
            await_leader(news, leads.fence());
        }
        leads.resign().unwrap();
        for news in &news {
            await_leader(news, None);
        }
    }
}

fn told_late(bench: &Bench<'_>) {
    let [here, there] = elections(bench);
    let leads = here.campaign().unwrap();
    for election in [&here, &there] {
        await_leader(&election.observe(), leads.fence());
        let mut observing = election.observe_async();
        // What is told first may be from before.
        while block_on(observing.next()).unwrap().and_then(|it| it.fence) != leads.fence() {}
    }
    leads.resign().unwrap();
    await_leader(&there.observe(), None);
}
