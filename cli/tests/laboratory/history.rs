//! The judge: whether what the critical sections logged can have happened under the locks' promises.
//!
//! Every process appends to a file of its own, in one kernel's clock, what it knows for certain:
//!
//! ```text
//! enter WHO STAY LOCK MODE FENCE ASKED ENTERED   inside since ENTERED at the latest
//! inside WHO STAY TIME                           still inside
//! held WHO STAY TIME                             the same, and the guard said so after TIME
//! leave WHO STAY TIME                            written before the lock is given back
//! lost WHO STAY TIME                             told that the lock is gone
//! ```
//!
//! who does something to processes writes
//!
//! ```text
//! stopped WHO FROM UNTIL                         from before SIGSTOP until after SIGCONT
//! ended WHO TIME                                 killed, or gone
//! apart HOST FROM UNTIL                          nobody of that host may be inside
//! forgot FROM UNTIL                              the store lost writes of that time, and whoever held then
//!                                                may not have been told
//! ```
//!
//! and the resource, in the order in which it served:
//!
//! ```text
//! write WHO STAY LOCK MODE FENCE VERDICT         accepted or refused
//! ```
//!
//! A stay lasts from ENTERED to its `leave`; if that is missing, to the last time it was surely
//! inside, provided that something proves its end: a loss, or the death of its process. Without a
//! proof it lasts for ever, and whoever enters later is inside with it. A process that was stopped
//! for as long as a lease may be mistaken when it wakes up, and only then: its stay counts until
//! the stop, and one that began across a stop has no certain beginning. The resource has to refuse
//! what it writes then, which the order of what was accepted shows. It may not be mistaken about
//! what its guard says then: a stay that was held also afterwards lasted all the time.
//!
//! Everything is sorted and swept once: O(n log n).

pub(crate) mod audit;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use self::sweep::Inside;

/// A line of a log, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) file: Rc<str>,
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.number, self.text)
    }
}

/// How a lock was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

impl Mode {
    /// As in the logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// What the judge is told of the locks.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// How many may be inside.
    pub(crate) permits: BTreeMap<String, usize>,
    /// Stops from here on excuse, in nanoseconds.
    pub(crate) long_stop_ns: u64,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Breach {
    /// Two were inside at a time, or more than there are permits.
    Together,
    /// Somebody was alone inside with a fence that is not above all before it.
    FenceFell,
    /// A fence was given twice.
    FenceReused,
    /// The resource accepted a fence that is lower than one it had seen.
    OldWriteAccepted,
    /// The resource was shown a fence that the writer never had.
    ForeignWrite,
    /// Somebody was inside on a host that had been without a majority for longer than a lease.
    InsideApart,
}

/// A breach, with the two lines that prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) first: Line,
    pub(crate) second: Line,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.breach {
            Breach::Together => "inside at a time",
            Breach::FenceFell => "the fence of the second does not rise above the first",
            Breach::FenceReused => "the same fence",
            Breach::OldWriteAccepted => "the second was accepted after the first",
            Breach::ForeignWrite => "the second was written with another fence than the first",
            Breach::InsideApart => "the second was inside without a majority",
        };
        write!(f, "{what}:\n  {}\n  {}", self.first, self.second)
    }
}

/// What a log says that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    line: Line,
    why: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.line)
    }
}

#[derive(Debug)]
struct Stay {
    line: Line,
    who: String,
    lock: String,
    mode: Mode,
    fence: u64,
    asked: u64,
    entered: u64,
    /// When it was surely inside last.
    evidence: u64,
    /// When its guard said so last.
    held: u64,
    /// A `leave` or a `lost`.
    is_over: bool,
    is_lost: bool,
    /// The process entered again afterwards: its death explains nothing of this stay.
    is_followed: bool,
}

#[derive(Debug)]
struct Write {
    line: Line,
    stay: (String, u64),
    lock: String,
    mode: Mode,
    fence: u64,
    is_accepted: bool,
}

/// What happened, by all logs.
#[derive(Debug, Default)]
pub(crate) struct History {
    stays: Vec<Stay>,
    by_name: HashMap<(String, u64), usize>,
    last_of: HashMap<String, usize>,
    stops: HashMap<String, Vec<(u64, u64)>>,
    ended: HashSet<String>,
    apart: Vec<Apart>,
    forgot: Vec<(u64, u64)>,
    writes: Vec<Write>,
}

/// A host without a majority.
#[derive(Debug)]
struct Apart {
    line: Line,
    /// What its processes' names begin with.
    prefix: String,
    from: u64,
    until: u64,
}

impl History {
    /// All logs in `directory`.
    ///
    /// # Errors
    /// The first line that is none. A last line without an end was being written when its
    /// process was killed, and does not count.
    pub(crate) fn read(directory: &Path) -> Result<Self, Unreadable> {
        let mut paths: Vec<_> = fs::read_dir(directory)
            .expect("the logs' directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        let mut history = Self::default();
        for path in paths {
            let text = fs::read_to_string(&path).expect("a log");
            let name = path.file_name().expect("a file").to_string_lossy();
            history.add(&name, &text)?;
        }
        Ok(history)
    }

    /// One log.
    pub(crate) fn add(&mut self, file: &str, text: &str) -> Result<(), Unreadable> {
        let file: Rc<str> = file.into();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (index, text) in whole.lines().enumerate() {
            let line = Line {
                file: Rc::clone(&file),
                number: index + 1,
                text: text.to_owned(),
            };
            self.take(line)?;
        }
        Ok(())
    }

    /// How often each lock was entered.
    pub(crate) fn entries(&self) -> BTreeMap<&str, usize> {
        let mut entries = BTreeMap::new();
        for stay in &self.stays {
            *entries.entry(&*stay.lock).or_default() += 1;
        }
        entries
    }

    /// How many stays ended with their process, and not by themselves.
    pub(crate) fn killed_inside(&self) -> usize {
        let stays = self.stays.iter();
        stays
            .filter(|stay| !stay.is_over && self.ended.contains(&stay.who))
            .count()
    }

    /// How many stays ended with the loss of the lock.
    pub(crate) fn lost_inside(&self) -> usize {
        self.stays.iter().filter(|stay| stay.is_lost).count()
    }

    /// How many writes the resource refused.
    pub(crate) fn refused(&self) -> usize {
        let writes = self.writes.iter();
        writes.filter(|write| !write.is_accepted).count()
    }

    fn take(&mut self, line: Line) -> Result<(), Unreadable> {
        let text = line.text.clone();
        let words: Vec<_> = text.split(' ').collect();
        let result = match &words[..] {
            ["enter", who, stay, lock, mode, fence, asked, entered] => {
                self.enter(&line, who, (stay, lock, mode), (fence, asked, entered))
            }
            [how @ ("inside" | "held" | "leave"), who, stay, time] => {
                self.goes_on(how, who, stay, time)
            }
            ["lost", who, stay, _] => self.loses(who, stay),
            ["stopped", who, from, until] => number(from).and_then(|from| {
                let stops = self.stops.entry((*who).to_owned()).or_default();
                stops.push((from, number(until)?));
                Some(())
            }),
            ["ended", who, time] => number(time).map(|_| {
                self.ended.insert((*who).to_owned());
            }),
            ["apart", host, from, until] => self.part(&line, host, from, until),
            ["forgot", from, until] => number(from).and_then(|from| {
                self.forgot.push((from, number(until)?));
                Some(())
            }),
            ["write", who, stay, lock, mode, fence, verdict] => {
                self.write(&line, (who, stay), (lock, mode, fence), verdict)
            }
            _ => None,
        };
        let why = "a line that no process writes";
        result.ok_or(Unreadable { line, why })
    }

    fn enter(
        &mut self,
        line: &Line,
        who: &str,
        (stay, lock, mode): (&str, &str, &str),
        (fence, asked, entered): (&str, &str, &str),
    ) -> Option<()> {
        let index = self.stays.len();
        let entered = number(entered)?;
        self.stays.push(Stay {
            line: line.clone(),
            who: who.to_owned(),
            lock: lock.to_owned(),
            mode: parse_mode(mode)?,
            fence: number(fence)?,
            asked: number(asked)?,
            entered,
            evidence: entered,
            held: 0,
            is_over: false,
            is_lost: false,
            is_followed: false,
        });
        if let Some(former) = self.last_of.insert(who.to_owned(), index) {
            self.stays[former].is_followed = true;
        }
        let known = self.by_name.insert((who.to_owned(), number(stay)?), index);
        known.is_none().then_some(())
    }

    /// The stay, if it goes on.
    fn open(&mut self, who: &str, stay: &str) -> Option<&mut Stay> {
        let index = *self.by_name.get(&(who.to_owned(), number(stay)?))?;
        let stay = &mut self.stays[index];
        (!stay.is_over).then_some(stay)
    }

    fn goes_on(&mut self, how: &str, who: &str, stay: &str, time: &str) -> Option<()> {
        let time = number(time)?;
        let stay = self.open(who, stay)?;
        if time < stay.evidence {
            return None;
        }
        (stay.evidence, stay.is_over) = (time, how == "leave");
        if how == "held" {
            stay.held = time;
        }
        Some(())
    }

    fn loses(&mut self, who: &str, stay: &str) -> Option<()> {
        let stay = self.open(who, stay)?;
        (stay.is_over, stay.is_lost) = (true, true);
        Some(())
    }

    fn part(&mut self, line: &Line, host: &str, from: &str, until: &str) -> Option<()> {
        self.apart.push(Apart {
            line: line.clone(),
            prefix: format!("{host}."),
            from: number(from)?,
            until: number(until)?,
        });
        Some(())
    }

    fn write(
        &mut self,
        line: &Line,
        (who, stay): (&str, &str),
        (lock, mode, fence): (&str, &str, &str),
        verdict: &str,
    ) -> Option<()> {
        let is_accepted = match verdict {
            "accepted" => true,
            "refused" => false,
            _ => return None,
        };
        self.writes.push(Write {
            line: line.clone(),
            stay: (who.to_owned(), number(stay)?),
            lock: lock.to_owned(),
            mode: parse_mode(mode)?,
            fence: number(fence)?,
            is_accepted,
        });
        Some(())
    }

    /// Everything that must not have happened, in the order of the locks' names.
    pub(crate) fn judge(&self, rules: &Rules) -> Vec<Violation> {
        let mut locks: BTreeMap<&str, Vec<Inside<'_>>> = BTreeMap::new();
        let mut found = Vec::new();
        for stay in &self.stays {
            let inside = self.inside(stay, rules);
            locks.entry(&stay.lock).or_default().push(inside);
        }
        for (lock, mut stays) in locks {
            let permits = *rules.permits.get(lock).expect("a lock of the laboratory");
            stays.sort_by_key(|inside| inside.from);
            let is_forgotten = |stay: &Stay| self.is_forgotten(stay.entered);
            sweep::fences_differ(&stays, is_forgotten, &mut found);
            // Who may have been mistaken has shown its fence, and nothing else.
            stays.retain(|inside| !inside.is_excused);
            self.nobody_apart(&stays, &mut found);
            if permits == 1 {
                sweep::fences_rise(&stays, &mut found);
            }
            let mut kept: Vec<_> = stays.iter().filter_map(|it| self.kept(it)).collect();
            kept.sort_by_key(|inside| inside.from);
            if permits == 1 {
                sweep::nobody_together(&kept, &mut found);
            } else {
                sweep::never_too_many(&kept, permits, &mut found);
            }
        }
        self.resource(rules, &mut found);
        found
    }

    /// From when until when it was surely inside.
    fn inside<'a>(&self, stay: &'a Stay, rules: &Rules) -> Inside<'a> {
        let is_proven = stay.is_over || !stay.is_followed && self.ended.contains(&stay.who);
        let mut inside = Inside {
            stay,
            from: stay.entered,
            until: if is_proven { stay.evidence } else { u64::MAX },
            is_excused: false,
        };
        let stops = self.stops.get(&stay.who).map_or(&[][..], |stops| stops);
        for &(from, until) in stops {
            let is_long = until.saturating_sub(from) >= rules.long_stop_ns;
            if !is_long || until < stay.asked || inside.until < from {
                continue;
            }
            if from < stay.entered {
                inside.is_excused = true;
            } else if stay.held < until {
                inside.until = from;
            }
        }
        inside
    }

    /// Whether the store lost what it acknowledged at `time`.
    fn is_forgotten(&self, time: u64) -> bool {
        let mut forgot = self.forgot.iter();
        forgot.any(|&(from, until)| from <= time && time <= until)
    }

    /// What is left of a stay without the times in which the store may have had another inside, too. Whoever
    /// is still inside when such a time is over has not been forgotten, or should have been told.
    fn kept<'a>(&self, inside: &Inside<'a>) -> Option<Inside<'a>> {
        let mut kept = *inside;
        for &(from, until) in &self.forgot {
            if (from..=until).contains(&kept.from) {
                kept.from = until;
            }
            if (from..=until).contains(&kept.until) {
                kept.until = from;
            }
        }
        (kept.from <= kept.until).then_some(kept)
    }

    /// Only what is evident counts: a stay without a proven end may have had one in time.
    fn nobody_apart(&self, stays: &[Inside<'_>], found: &mut Vec<Violation>) {
        for apart in &self.apart {
            let is_there = |inside: &&Inside<'_>| {
                let until = inside.until.min(inside.stay.evidence);
                inside.stay.who.starts_with(&apart.prefix)
                    && inside.from < apart.until
                    && until > apart.from
            };
            found.extend(stays.iter().filter(is_there).map(|inside| Violation {
                breach: Breach::InsideApart,
                first: apart.line.clone(),
                second: inside.stay.line.clone(),
            }));
        }
    }

    fn resource(&self, rules: &Rules, found: &mut Vec<Violation>) {
        let mut highest: BTreeMap<&str, &Write> = BTreeMap::new();
        for write in &self.writes {
            let stay = self.by_name.get(&write.stay).map(|&at| &self.stays[at]);
            match stay {
                Some(stay) if (&stay.lock, stay.fence) == (&write.lock, write.fence) => {}
                // The stay is logged before the first write.
                stay => found.push(Violation {
                    breach: Breach::ForeignWrite,
                    first: stay.map_or(&write.line, |stay| &stay.line).clone(),
                    second: write.line.clone(),
                }),
            }
            if !write.is_accepted || rules.permits.get(&write.lock) != Some(&1) {
                continue;
            }
            let before = highest.get(&*write.lock);
            if let Some(before) = before.filter(|before| before.fence > write.fence) {
                found.push(Violation {
                    breach: Breach::OldWriteAccepted,
                    first: before.line.clone(),
                    second: write.line.clone(),
                });
            } else if write.mode == Mode::Exclusive {
                highest.insert(&write.lock, write);
            }
        }
    }
}

fn number(word: &str) -> Option<u64> {
    word.parse().ok()
}

fn parse_mode(word: &str) -> Option<Mode> {
    let modes = [Mode::Exclusive, Mode::Shared];
    modes.into_iter().find(|mode| mode.name() == word)
}
