//! What took place in a world that nothing broke, and in many together.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One world. Two runs of a seed have the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) algorithm: String,
    pub(crate) kind: String,
    pub(crate) hosts: usize,
    pub(crate) turns: u64,
    /// Which thread had each of them, and when.
    pub(crate) digest: String,
    /// How long it took there.
    pub(crate) seconds: f64,
    /// Programs and commands that entered, on each host.
    pub(crate) entries: Vec<[u64; 2]>,
    /// What befell whom, and how often.
    pub(crate) acts: BTreeMap<String, u64>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            algorithm,
            kind,
            hosts,
            turns,
            digest,
            seconds,
            entries,
            acts,
        } = self;
        write!(
            f,
            "{algorithm}, {kind}, {hosts} hosts, {turns} turns ({digest}) in {seconds:.1} s, \
             entered {entries:?}, {acts:?}"
        )
    }
}

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seed: u64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What came of each seed.
#[derive(Debug, Default)]
pub(crate) struct Log {
    file: Option<File>,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Log {
    /// The one at `path`, with what is in it.
    ///
    /// # Errors
    /// If it cannot be read, or says something else.
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut options = File::options();
        let file = options.read(true).append(true).create(true).open(path)?;
        let mut outcomes = BTreeMap::new();
        for line in BufReader::new(&file).lines() {
            let Line { seed, outcome } = serde_json::from_str(&line?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            outcomes.insert(seed, outcome);
        }
        let file = Some(file);
        Ok(Self { file, outcomes })
    }

    pub(crate) fn has(&self, seed: u64) -> bool {
        self.outcomes.contains_key(&seed)
    }

    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add(&mut self, seed: u64, outcome: Outcome) -> Result<(), Box<dyn Error>> {
        if let Some(file) = &mut self.file {
            let outcome = outcome.clone();
            let mut line = serde_json::to_string(&Line { seed, outcome })?;
            line.push('\n');
            file.write_all(line.as_bytes())?;
        }
        self.outcomes.insert(seed, outcome);
        Ok(())
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || self.outcomes.values();
        let turns: u64 = all().map(|its| its.turns).sum();
        let entered: u64 = all().flat_map(|its| its.entries.iter().flatten()).sum();
        let mut acts: BTreeMap<&str, u64> = BTreeMap::new();
        for (act, count) in all().flat_map(|its| &its.acts) {
            *acts.entry(act).or_default() += count;
        }
        let seeds = self.outcomes.len();
        write!(
            f,
            "passed: {seeds} seeds, {turns} turns, {entered} entries, {acts:?}"
        )
    }
}
