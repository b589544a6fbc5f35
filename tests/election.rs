//! Elections through the public API: members, and clients of a host's agent.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock::{
    Agent, DistMutex, ElectionAlgorithm, HandleError, Leader, LockError, LockOptions,
    TimedLockError,
};
use support::{Group, is_busy, two_local};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Three members, of whom the first serves a client.
struct Shop {
    agents: [Agent; 3],
    client: Agent,
    _group: Group,
}

impl Shop {
    fn open(election: ElectionAlgorithm) -> Self {
        let group = Group::new(3, &format!("election = \"{election}\""));
        let (first, client) = group.with_client();
        Self {
            agents: [first, group.member(2), group.member(3)],
            client,
            _group: group,
        }
    }
}

/// Waits until it is told that this member leads, or (0) that nobody does.
fn await_leader(observed: &Receiver<Option<Leader>>, member: u16) -> Option<Leader> {
    loop {
        let told = observed.recv_timeout(TIMEOUT).expect("news in time");
        let leads = told.as_ref().and_then(|leader| leader.member);
        if leads.map_or(0, u16::from) == member {
            return told;
        }
    }
}

/// By every algorithm: one leads, all observers know it with its fence, the highest of those that
/// campaign takes over when it resigns.
#[test]
fn one_leads_and_all_know_it() {
    for algorithm in ElectionAlgorithm::ALL {
        let shop = Shop::open(algorithm);
        let elections: Vec<_> = shop
            .agents
            .iter()
            .chain([&shop.client])
            .map(|agent| agent.election("job").unwrap())
            .collect();
        let observed: Vec<_> = elections
            .iter()
            .map(|election| election.observe())
            .collect();

        let first = elections[0].campaign().unwrap();
        for channel in &observed {
            let told = await_leader(channel, 1).unwrap();
            assert_eq!(told.fence, first.fence());
        }
        // Also through the agent of the member that leads.
        for other in &elections[1..] {
            assert!(is_busy(other.try_campaign()));
        }
        let late = elections[1].try_campaign_for(Duration::from_millis(20));
        assert!(matches!(late, Err(TimedLockError::TimedOut)));

        std::thread::scope(|scope| {
            let [second, third] = [1, 2].map(|at: usize| {
                let election = &elections[at];
                scope.spawn(move || election.campaign().unwrap())
            });
            // Both wait before the first resigns.
            while waiting(&shop.agents[0]) < 2 {
                std::thread::yield_now();
            }
            let fence = first.fence();
            first.resign().unwrap();
            let third = third.join().unwrap();
            assert!(third.is_held() && third.fence() > fence, "{algorithm}");
            for channel in &observed {
                await_leader(channel, 3);
            }
            drop(third);
            let second = second.join().unwrap();
            assert_eq!(await_leader(&observed[3], 2).unwrap().fence, second.fence());
            second.resign().unwrap();
        });
        for channel in &observed {
            assert_eq!(await_leader(channel, 0), None);
        }
        // A client of the first member's agent leads as that member.
        let client = elections[3].campaign().unwrap();
        await_leader(&observed[1], 1);
        client.resign().unwrap();
    }
}

fn waiting(agent: &Agent) -> usize {
    let status = agent.status().unwrap();
    let job = status.locks.iter().find(|lock| lock.name == "job");
    job.map_or(0, |job| job.waiters.len())
}

/// An election and the lock of its name are one.
#[test]
fn the_mutex_of_that_name_excludes_leaders() {
    let shop = Shop::open(ElectionAlgorithm::Bully);
    let mutex = shop.agents[1].mutex("job").unwrap();
    let election = shop.agents[0].election("job").unwrap();
    let held = mutex.lock().unwrap();
    assert!(is_busy(election.try_campaign()));
    let observed = election.observe();
    assert_eq!(
        observed.recv_timeout(TIMEOUT),
        Ok(None),
        "who holds it does not lead"
    );
    std::thread::scope(|scope| {
        let leads = scope.spawn(|| election.campaign().unwrap());
        drop(held);
        let leadership = leads.join().unwrap();
        assert!(is_busy(mutex.try_lock()));
        drop(leadership.into_guard());
    });
    drop(mutex.try_lock_for(TIMEOUT).unwrap());
}

/// A candidate looks after something else meanwhile, and waits no longer than it wants to.
#[test]
fn candidates_wait_in_slices_and_for_a_while() {
    let shop = Shop::open(ElectionAlgorithm::Bully);
    let [one, two] = [0, 1].map(|at| shop.agents[at].election("job").unwrap());
    let slice = Duration::from_millis(20);
    let mut stands = one.begin().unwrap();
    let leads = loop {
        if let Poll::Ready(guard) = stands.wait_slice(slice) {
            break guard.unwrap();
        }
    };
    assert_eq!(
        await_leader(&two.observe(), 1).unwrap().fence,
        leads.fence()
    );
    let mut stands = two.begin_for(2 * slice).unwrap();
    let late = loop {
        if let Poll::Ready(late) = stands.wait_slice(slice) {
            break late;
        }
    };
    assert!(matches!(late, Err(TimedLockError::TimedOut)), "{late:?}");
    let mut waits = two.campaign_async_for(2 * slice);
    let mut poll = || Pin::new(&mut waits).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    std::thread::sleep(3 * slice);
    let late = poll();
    assert!(
        matches!(late, Poll::Ready(Err(TimedLockError::TimedOut))),
        "{late:?}"
    );
    drop(leads);
    let mut stands = two.begin_for(TIMEOUT).unwrap();
    assert!(matches!(stands.wait_slice(TIMEOUT), Poll::Ready(Ok(_))));
}

#[test]
fn another_algorithm_than_the_groups_is_refused() {
    let shop = Shop::open(ElectionAlgorithm::Ring);
    for agent in [&shop.agents[0], &shop.client] {
        let right = agent
            .election_with("job", Some(ElectionAlgorithm::Ring), &LockOptions::new())
            .unwrap();
        drop(right.campaign().unwrap());
        let wrong = agent
            .election_with("job", Some(ElectionAlgorithm::Bully), &LockOptions::new())
            .unwrap();
        let refused = wrong.campaign().unwrap_err();
        assert!(
            matches!(
                refused,
                LockError::WrongElection {
                    asked: ElectionAlgorithm::Bully,
                    actual: ElectionAlgorithm::Ring,
                }
            ),
            "{refused}"
        );
    }
}

#[test]
fn the_local_group_elects_by_the_kernel() {
    let (_directory, agent, other) = two_local();
    let election = agent.election("job").unwrap();
    let leads = election.campaign().unwrap();
    let try_it = other.election("job").unwrap().try_campaign();
    assert!(is_busy(try_it));
    assert!(
        election.observe().recv().is_err(),
        "there is nothing to tell"
    );
    leads.resign().unwrap();
    let refused = agent.election_with("job", Some(ElectionAlgorithm::Bully), &LockOptions::new());
    assert!(matches!(refused, Err(HandleError::NoElections { .. })));
}
