//! Every byte that the simulated members send, and every grant, in runs that are recorded: what only
//! renames or moves code leaves them as they are.
//!
//! Who means to change what is sent, or when, writes them down anew: `DISTLOCK_BLESS=1 cargo test -p
//! distlock-lab --test golden`.
use std::fmt::Write as _;
use std::fs;
use std::thread;

use distlock_lab::campaign::{Report, run, run_directed, run_elections, run_on_lies};
use distlock_protocol::{Algorithm, ElectionAlgorithm, Failure};

/// Two of each kind: a run sends some thirty thousand datagrams.
const SEEDS: u64 = 2;

fn lines(name: &str, play: impl Fn(u64) -> (Report, u64)) -> String {
    let mut lines = String::new();
    for seed in 0..SEEDS {
        let (report, fingerprint) = play(seed);
        let Report { steps, grants, .. } = report;
        let _ = writeln!(
            lines,
            "{name} seed {seed}: {steps} steps, {grants} grants, {fingerprint:016x}"
        );
    }
    lines
}

/// The runs of one algorithm.
fn runs(algorithm: Algorithm) -> String {
    let play = |failure| {
        move |seed| {
            let outcome = run(algorithm, failure, seed, None);
            outcome.unwrap_or_else(|violation| panic!("{algorithm}, seed {seed}: {violation}"))
        }
    };
    let mut text = String::new();
    if algorithm != Algorithm::Voting {
        text += &lines(&format!("{algorithm} quorum"), play(Failure::Quorum));
        let directed = |seed| run_directed(algorithm, seed, None).expect("it passes");
        text += &lines(&format!("{algorithm} quorum directed"), directed);
        let lies = |seed| run_on_lies(algorithm, seed, None).expect("it passes");
        text += &lines(&format!("{algorithm} quorum lying"), lies);
    }
    let presumed = play(Failure::PresumeFailed);
    text + &lines(&format!("{algorithm} presume-failed"), presumed)
}

#[test]
fn what_is_sent_is_golden() {
    let elections = [
        ElectionAlgorithm::Bully,
        ElectionAlgorithm::Ring,
        ElectionAlgorithm::ChangRoberts,
    ];
    let made = thread::scope(|scope| {
        let locks: Vec<_> = Algorithm::ALL
            .into_iter()
            .map(|algorithm| scope.spawn(move || runs(algorithm)))
            .collect();
        let elections = elections.map(|algorithm| {
            scope.spawn(move || {
                let play = |seed| {
                    let outcome = run_elections(algorithm, Failure::Quorum, seed, None);
                    outcome.expect("it passes")
                };
                lines(&format!("{algorithm} quorum"), play)
            })
        });
        let parts = locks.into_iter().chain(elections);
        parts
            .map(|part| part.join().expect("it passes"))
            .collect::<String>()
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/runs.txt");
    if std::env::var_os("DISTLOCK_BLESS").is_some() {
        fs::write(path, &made).expect("room");
    }
    let golden = fs::read_to_string(path).expect("it is there");
    let changed: Vec<_> = made
        .lines()
        .zip(golden.lines())
        .filter(|(made, golden)| made != golden)
        .collect();
    assert!(made == golden, "other than recorded: {changed:#?}");
}
