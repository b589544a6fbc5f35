//! Elections through the public API: members, and clients of a host's agent.

use std::path::Path;
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock::{
    Agent, Config, DistMutex, ElectionAlgorithm, HandleError, Leader, LockError, LockOptions,
    NodeConfig, TimedLockError, TryLockError,
};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Three members over Unix datagrams, of whom the first serves a client.
struct Shop {
    agents: Vec<Agent>,
    client: Agent,
    _directory: TempDir,
}

impl Shop {
    fn open(election: ElectionAlgorithm) -> Self {
        let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
        let path = directory.path();
        let mut text = format!("election = \"{election}\"\n[group]\nname = \"shop\"\n");
        for id in 1..=3 {
            text += &format!(
                "[[member]]\nid = {id}\naddress = \"unix:{}/{id}\"\n",
                path.display()
            );
        }
        let config = Config::parse(&text).unwrap();
        let socket = path.join("service");
        let open = |id: u16| {
            let node = node(&config, id, path);
            let node = if id == 1 {
                node.with_socket(&socket)
            } else {
                node
            };
            Agent::from_config(node).unwrap()
        };
        Self {
            agents: (1..=3).map(open).collect(),
            client: Agent::connect(&socket).unwrap(),
            _directory: directory,
        }
    }
}

fn node(config: &Config, id: u16, path: &Path) -> NodeConfig {
    let state = path.join(format!("state-{id}"));
    config.node(id).unwrap().with_state_dir(state)
}

/// Waits until it is told that this member leads, or (0) that nobody does.
fn await_leader(observed: &Receiver<Option<Leader>>, member: u16) -> Option<Leader> {
    loop {
        let told = observed.recv_timeout(TIMEOUT).expect("news in time");
        if told.map_or(0, |leader| leader.member.as_u16()) == member {
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
            assert!(matches!(
                other.try_campaign(),
                Err(TryLockError::WouldBlock)
            ));
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
    assert!(matches!(
        election.try_campaign(),
        Err(TryLockError::WouldBlock)
    ));
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
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        drop(leadership.into_guard());
    });
    drop(mutex.try_lock_for(TIMEOUT).unwrap());
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
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    let election = agent.election("job").unwrap();
    let leads = election.campaign().unwrap();
    let other = Agent::local_in(directory.path()).unwrap();
    let try_it = other.election("job").unwrap().try_campaign();
    assert!(matches!(try_it, Err(TryLockError::WouldBlock)));
    assert!(
        election.observe().recv().is_err(),
        "there is nothing to tell"
    );
    leads.resign().unwrap();
    let refused = agent.election_with("job", Some(ElectionAlgorithm::Bully), &LockOptions::new());
    assert!(matches!(refused, Err(HandleError::NoElections { .. })));
}
