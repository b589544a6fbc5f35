//! What seals add to an uncontended entry by ricart-agrawala, one round trip to each other member,
//! over this host's loopback.
//!
//! ```text
//! cargo run --release -p distlock-agent --example seal_cost -- 20000 2 3 5
//! ```
//! has one member of groups of 2, 3 and 5 enter 20,000 times, in a group with a key and in one
//! without, an entry here and an entry there, so that what else the machine does hits both.

#[path = "support/agents.rs"]
mod agents;

use std::time::Duration;

use distlock_agent::runtime::{GroupKey, clock};

use agents::Agents;

/// Entries before any is measured.
const WARM_UP: usize = 200;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().ok());
    let usage = "usage: seal_cost ENTRIES MEMBERS…";
    let entries: usize = numbers.next().flatten().expect(usage);
    let sizes: Vec<_> = numbers.collect::<Option<Vec<usize>>>().expect(usage);
    let directory = tempfile::tempdir().expect("a directory");
    let key_file = directory.path().join("group.key");
    let key = GroupKey::generate().expect("random numbers");
    key.write(&key_file).expect("a file");
    println!("members  insecure us  sealed us  more us  (medians of {entries})");
    for size in sizes {
        let size = u16::try_from(size).expect(usage);
        let worlds = [None, Some(&key_file)]
            .map(|key_file| Agents::start(size, |options| options.key_file = key_file.cloned()));
        let mut took = [Vec::new(), Vec::new()];
        for entry in 0..WARM_UP + entries {
            for (world, took) in worlds.iter().zip(&mut took) {
                let start = clock::now();
                world.enter(0);
                if entry >= WARM_UP {
                    took.push(clock::now().since(start));
                }
            }
        }
        let [insecure, sealed] = took.map(median);
        let more = sealed - insecure;
        println!("{size:7}  {insecure:11.1}  {sealed:9.1}  {more:7.1}");
    }
}

/// In microseconds.
fn median(mut took: Vec<Duration>) -> f64 {
    took.sort();
    took[took.len() / 2].as_secs_f64() * 1e6
}
