//! What an entry costs with multicast and without: datagrams sent, which are as many calls of
//! sendto(2), and received, and the time; side by side, over this host's loopback.
//!
//! ```text
//! cargo run --release -p distlock-agent --example multicast_cost -- 500 3 5 8
//! ```
//! has each member of groups of 3, 5 and 8 enter 500 times by ricart-agrawala, in turns, in a group
//! with multicast and in one without, a round here and a round there, so that what else the machine
//! does hits both. Members are agents with threads of their own, all in this process.

#[path = "support/agents.rs"]
mod agents;

use std::net::Ipv4Addr;
use std::time::Duration;

use distlock_agent::runtime::{Agent, MulticastAddress, TransportCounters, clock};

use agents::{Agents, TIMEOUT};

struct World {
    agents: Agents,
    has_multicast: bool,
    /// Of each round.
    took: Vec<Duration>,
    before: Vec<TransportCounters>,
}

impl World {
    fn new(size: u16, multicast: Option<MulticastAddress>) -> Self {
        let mut world = Self {
            agents: Agents::start(size, |options| options.multicast = multicast),
            has_multicast: multicast.is_some(),
            took: Vec::new(),
            before: Vec::new(),
        };
        world.warm_up();
        world
    }

    /// Until all know whom they reach by multicast.
    fn warm_up(&mut self) {
        let start = clock::now();
        let expected = if self.has_multicast {
            self.agents.all.len() - 1
        } else {
            0
        };
        loop {
            self.take_turns();
            let reached = |agent: &Agent| {
                let status = agent.status().expect("it runs");
                status
                    .multicast
                    .map_or(0, |multicast| multicast.reached.len())
            };
            if self
                .agents
                .all
                .iter()
                .all(|agent| reached(agent) == expected)
            {
                break;
            }
            assert!(
                clock::now().since(start) < TIMEOUT,
                "not all are reached by multicast"
            );
        }
        self.took.clear();
        self.before = self.counters();
    }

    fn counters(&self) -> Vec<TransportCounters> {
        let agents = self.agents.all.iter();
        agents.map(|agent| agent.counters().transport).collect()
    }

    fn take_turns(&mut self) {
        let start = clock::now();
        (0..self.agents.all.len()).for_each(|index| self.agents.enter(index));
        self.took.push(clock::now().since(start));
    }

    fn tell(mut self) {
        let size = self.agents.all.len();
        let entries = (size * self.took.len()) as f64;
        let after = self.counters();
        let per_entry = |of: fn(&TransportCounters) -> u64| {
            let sum = |all: &[TransportCounters]| all.iter().map(of).sum::<u64>();
            (sum(&after) - sum(&self.before)) as f64 / entries
        };
        self.took.sort();
        let median = self.took[self.took.len() / 2].as_secs_f64() * 1e6 / size as f64;
        println!(
            "{size:7}  {:>9}  {:10.2}  {:14.2}  {:14.2}  {median:8.1}",
            if self.has_multicast { "yes" } else { "no" },
            per_entry(|it| it.sent),
            per_entry(|it| it.multicast_merged),
            per_entry(|it| it.received),
        );
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().ok());
    let usage = "usage: multicast_cost ROUNDS MEMBERS…";
    let rounds = numbers.next().flatten().expect(usage);
    let sizes: Vec<u16> = numbers.collect::<Option<_>>().expect(usage);
    println!("members  multicast  sent/entry  replaced/entry  received/entry  us/entry");
    for size in sizes {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = (Ipv4Addr::new(239, 255, high, low), 7400);
        let address = MulticastAddress::new(address.into()).expect("one of many hosts");
        let mut worlds = [None, Some(address)].map(|multicast| World::new(size, multicast));
        for _ in 0..rounds {
            worlds.iter_mut().for_each(World::take_turns);
        }
        worlds.into_iter().for_each(World::tell);
    }
}
