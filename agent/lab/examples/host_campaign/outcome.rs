//! What took place in a world that nothing broke, and in many together.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a campaign of all kinds of worlds comes to; of what it did not come to it has shown nothing.
const ACTS: [&str; 58] = [
    "a holder ended inside",
    "a member is not in the file",
    "a program garbles",
    "a program is a member",
    "a reader ended inside",
    "aborted as its lock was lost",
    "add a host",
    "added",
    "all but the agent stop",
    "all but the guardian stop",
    "all but the runner stop",
    "all sleep",
    "an agent is closed inside",
    "another key",
    "another lease in the file",
    "cut off",
    "cut power",
    "deaf",
    "disk fails",
    "disk stalls",
    "disks fail together",
    "disks stall",
    "end agent",
    "followed into another cluster",
    "founding given up",
    "inside with another lock",
    "inside with another permit",
    "inside with other readers",
    "key exchanged",
    "key exchanged in peace",
    "kill",
    "lose state",
    "lose states",
    "mute",
    "other voters in all files",
    "other voters in the file",
    "recover",
    "recovered",
    "recovered by another file",
    "remove",
    "removed",
    "set clock",
    "set lease",
    "set lease of others",
    "set rate",
    "set voters",
    "stop",
    "suspend",
    "the other agents stop",
    "the runner has ended and the agent stops",
    "the runner stops and the agent is killed",
    "told of files",
    "told of recover",
    "two do not reach each other",
    "two lose states",
    "two sides",
    "voters forget",
    "voters set",
];

/// One world. Two runs of a seed have the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) algorithm: String,
    pub(crate) kind: String,
    pub(crate) hosts: usize,
    pub(crate) turns: u64,
    /// Which thread had each turn, and when.
    pub(crate) digest: String,
    /// True seconds of the world.
    pub(crate) seconds: f64,
    /// Programs and commands that entered, on each host.
    pub(crate) entries: Vec<[u64; 2]>,
    /// What befell hosts and processes, and how often.
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

/// What a log is of: an outcome says nothing of another program, or of other options.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// The checksum of the program that is put to the test.
    pub(crate) program: u32,
    /// That of the campaign, which makes the worlds and judges them, and of what is loaded into programs.
    pub(crate) campaign: u32,
    pub(crate) engine: String,
    pub(crate) trouble: Option<String>,
    pub(crate) twice: bool,
}

/// A line of the log behind the first.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seed: u64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What came of the seeds that have passed.
#[derive(Debug, Default)]
pub(crate) struct Log {
    file: Option<File>,
    outcomes: BTreeMap<u64, Outcome>,
}

impl Log {
    /// The one at `path`, with what is in it. What was being written when a campaign was ended is cut off.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    pub(crate) fn open(path: &Path, subject: &Subject) -> Result<Self, Box<dyn Error>> {
        let mut options = File::options();
        let mut file = options.read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let mut lines = text[..whole].lines();
        let wrong = |error| format!("{}: {error}", path.display());
        match lines.next().map(serde_json::from_str::<Subject>) {
            None => writeln!(file, "{}", serde_json::to_string(subject)?)?,
            Some(there) if there.as_ref().is_ok_and(|there| there == subject) => {}
            Some(Ok(there)) => {
                let what = format!("it is of {there:?}, and not of {subject:?}: name another file");
                return Err(wrong(what).into());
            }
            Some(Err(error)) => return Err(wrong(error.to_string()).into()),
        }
        let mut outcomes = BTreeMap::new();
        for line in lines {
            let line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()));
            let Line { seed, outcome } = line?;
            outcomes.insert(seed, outcome);
        }
        let file = Some(file);
        Ok(Self { file, outcomes })
    }

    pub(crate) fn has(&self, seed: u64) -> bool {
        self.outcomes.contains_key(&seed)
    }

    pub(crate) fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// What has never been played, of all that such campaigns can.
    pub(crate) fn lacks(&self) -> Vec<&'static str> {
        let played = |act: &str| self.outcomes.values().any(|its| its.acts.contains_key(act));
        ACTS.into_iter().filter(|act| !played(act)).collect()
    }

    /// # Errors
    /// If it cannot be written, or has played what is not among [`ACTS`].
    pub(crate) fn add(&mut self, seed: u64, outcome: Outcome) -> Result<(), Box<dyn Error>> {
        if let Some(act) = outcome
            .acts
            .keys()
            .find(|act| !ACTS.contains(&act.as_str()))
        {
            return Err(format!("'{act}' is not among what campaigns are to play").into());
        }
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

/// All together.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || self.outcomes.values();
        let turns: u64 = all().map(|its| its.turns).sum();
        let entered: u64 = all().flat_map(|its| its.entries.iter().flatten()).sum();
        let mut acts: BTreeMap<&str, u64> = BTreeMap::new();
        for (act, count) in all().flat_map(|its| &its.acts) {
            *acts.entry(act).or_default() += count;
        }
        let seeds = self.len();
        write!(
            f,
            "passed: {seeds} seeds, {turns} turns, {entered} entries, {acts:?}"
        )
    }
}
