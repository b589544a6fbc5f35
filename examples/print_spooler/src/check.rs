//! Tells from the paper, and from what the hosts say, whether they took turns.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a banner line begins with.
pub(crate) const BANNER: &str = "==== ";

/// A text to print that can be checked: no two lines of any two of these are the same.
pub(crate) fn text(name: &str, lines: u32) -> String {
    const WORDS: &str = "every line in a message of its own";
    (1..=lines)
        .map(|line| format!("{name:<12} {line:>5} of {lines:<5} {WORDS}\n"))
        .collect()
}

/// One file as the host that printed it tells it, in a line of its standard output. The times are
/// times since the machine started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The fence; `None` without the lock.
    pub(crate) fence: Option<u64>,
    /// When the host asked for the lock.
    pub(crate) requested: Duration,
    /// When it had the lock.
    pub(crate) granted: Duration,
    /// When the printer was through, and the host about to release the lock.
    pub(crate) released: Duration,
    /// The file's name.
    pub(crate) name: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requested,
            granted,
            released,
            name,
            ..
        } = self;
        let [requested, granted, released] = [requested, granted, released].map(Duration::as_nanos);
        let fence = self.fence.unwrap_or(0);
        write!(f, "printed {fence} {requested} {granted} {released} {name}")
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parse = || {
            let mut fields = line.splitn(6, ' ');
            fields.next().filter(|&word| word == "printed")?;
            let mut number = || fields.next()?.parse::<u64>().ok();
            let fence = number()?;
            Some(Self {
                fence: (fence != 0).then_some(fence),
                requested: Duration::from_nanos(number()?),
                granted: Duration::from_nanos(number()?),
                released: Duration::from_nanos(number()?),
                name: fields.next()?.to_owned(),
            })
        };
        parse().ok_or_else(|| format!("{line:?} is not a report of a file printed"))
    }
}

/// What the paper shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Paper {
    /// The files that are whole, with the fences on their banners, in the order in which they came.
    pub(crate) whole: Vec<(String, Option<u64>)>,
    /// The names of the files that are not: lines of others between theirs, lines missing, twice
    /// or out of order.
    pub(crate) torn: Vec<String>,
    /// How often a line is followed by one of another file.
    pub(crate) changes: usize,
}

impl Paper {
    /// Reads the paper. `files` are the texts by their names.
    ///
    /// # Errors
    ///
    /// A line that is in none of the files, or in two.
    pub(crate) fn read(paper: &str, files: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut origin = BTreeMap::new();
        for (name, text) in files {
            for (line, number) in text.lines().zip(1..) {
                if origin.insert(line, (name.as_str(), number)).is_some() {
                    return Err(format!("the line {line:?} is not the only one of its kind"));
                }
            }
        }
        // Each printed line as the file it is of and its number, the banner's being 0.
        let mut sequence: Vec<(&str, usize)> = Vec::new();
        let mut fences = BTreeMap::new();
        for line in paper.lines() {
            let unknown = || format!("the printer printed {line:?}, which nobody sent like that");
            if let Some(title) = line.strip_prefix(BANNER) {
                let (name, fence) = title.rsplit_once(", ").ok_or_else(unknown)?;
                let (name, _) = files.get_key_value(name).ok_or_else(unknown)?;
                let fence = fence.strip_prefix("fence ").map(str::parse).transpose();
                fences.insert(name.as_str(), fence.map_err(|_| unknown())?);
                sequence.push((name, 0));
            } else {
                sequence.push(*origin.get(line).ok_or_else(unknown)?);
            }
        }

        let runs: Vec<_> = sequence.chunk_by(|a, b| a.0 == b.0).collect();
        let in_one_run = |name| runs.iter().filter(|run| run[0].0 == name).count() == 1;
        let whole: Vec<_> = runs
            .iter()
            .filter(|run| {
                let lines = files[run[0].0].lines().count();
                in_one_run(run[0].0) && run.iter().map(|line| line.1).eq(0..=lines)
            })
            .map(|run| (run[0].0.to_owned(), fences[run[0].0]))
            .collect();
        let torn = files
            .keys()
            .filter(|&name| whole.iter().all(|file| file.0 != *name));
        Ok(Self {
            torn: torn.cloned().collect(),
            changes: runs.len().saturating_sub(1),
            whole,
        })
    }

    /// Checks that the hosts took turns: every file is whole, the files came in the order of the
    /// grants, nobody was inside with another, and the fences rise. Sorts `reports` by grant.
    ///
    /// # Errors
    ///
    /// The first thing that is not so.
    pub(crate) fn check_turns(&self, reports: &mut [Report]) -> Result<(), String> {
        if !self.torn.is_empty() {
            return Err(format!("not whole: {}", self.torn.join(", ")));
        }
        reports.sort_by_key(|report| report.granted);
        let granted = reports.iter().map(|report| (&report.name, report.fence));
        if !granted.eq(self.whole.iter().map(|(name, fence)| (name, *fence))) {
            return Err("the files did not come in the order of the grants".to_owned());
        }
        for pair in reports.windows(2) {
            let (former, next) = (&pair[0], &pair[1]);
            if next.granted < former.released {
                return Err(format!(
                    "{} and {} were inside at once",
                    former.name, next.name
                ));
            }
        }
        if reports.iter().any(|report| report.fence.is_none())
            || !reports.is_sorted_by(|a, b| a.fence < b.fence)
        {
            return Err("the fences do not rise from grant to grant".to_owned());
        }
        Ok(())
    }
}
