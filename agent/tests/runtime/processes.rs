//! Eight processes increment a file that nothing else protects: with each engine, over UDP and
//! Unix datagrams, and over UDP with sealed datagrams dropped, duplicated and damaged.
//!
//! `DISTLOCK_TEST_ENTRIES` sets how often each of them enters; 250 is the number to show.

use std::fs;
use std::time::Duration;

use distlock_agent::protocol::Algorithm;
use distlock_agent::runtime::{Faults, clock};

use crate::support::{Group, Kind, Process, count, read_counter};

const PROCESSES: u16 = 8;
/// A tenth of the datagrams each.
const FAULTS: Faults = Faults {
    seed: 1,
    drop_per_mille: 100,
    duplicate_per_mille: 100,
    corrupt_per_mille: 100,
};

fn take_turns(kind: Kind, algorithm: Algorithm, faults: Option<Faults>) {
    // Each lost datagram costs the time after which it is repeated: the engines that send most
    // would take minutes.
    let rounds = match algorithm {
        Algorithm::TokenRing | Algorithm::TokenRingRequests => 250,
        _ if faults.is_some() => 50,
        _ => 250,
    };
    let rounds = count("DISTLOCK_TEST_ENTRIES", rounds);
    let mut group = Group::by(algorithm, kind, PROCESSES);
    if faults.is_some() {
        group = group.with_key();
    }
    group.faults = faults;
    let counter = group.directory.join("counter");
    fs::write(&counter, "0").unwrap();
    let started = clock::now();
    let mut processes: Vec<_> = (1..=PROCESSES)
        .map(|id| group.spawn("increment", id, rounds))
        .collect();
    for process in &mut processes {
        process.expect("done");
    }
    let took: Duration = clock::now().since(started);
    println!("{algorithm} over {kind:?}: {took:?}");
    assert_eq!(read_counter(&counter), usize::from(PROCESSES) * rounds);
    processes.into_iter().for_each(Process::finish);
}

macro_rules! each_engine {
    ($($name:ident: $algorithm:ident),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn over_udp() {
                take_turns(Kind::Udp, Algorithm::$algorithm, None);
            }

            #[test]
            fn over_unix_datagrams() {
                take_turns(Kind::Unix, Algorithm::$algorithm, None);
            }

            #[test]
            fn over_udp_with_faults() {
                take_turns(Kind::Udp, Algorithm::$algorithm, Some(FAULTS));
            }
        }
    )+};
}

each_engine! {
    semaphore: Semaphore,
    bakery: Bakery,
    ricart_agrawala: RicartAgrawala,
    token_ring: TokenRing,
    token_ring_requests: TokenRingRequests,
    lamport: Lamport,
    carvalho_roucairol: CarvalhoRoucairol,
    maekawa: Maekawa,
    majority: Majority,
    suzuki_kasami: SuzukiKasami,
    singhal: Singhal,
    raymond: Raymond,
    voting: Voting,
    manager: Manager,
}
