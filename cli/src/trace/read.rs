//! The traces as they are in their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use distlock_agent::runtime::trace::{self, FORMAT, Head};

use super::args::usage;
use crate::exit::{Failure, NO_INPUT, quoted};
use crate::refusal;

/// Longer than any line.
const LONGEST_LINE: u64 = 1 << 20;

/// All that the files say.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// The group, and the file that says so.
    pub(super) group: Option<(String, PathBuf)>,
    pub(super) members: BTreeMap<u16, Member>,
    /// The clocks by which times are, with a reading of each (its own, and the wall clock's).
    pub(super) clocks: Vec<(String, u64, u64)>,
    /// What members have learned of each other's clocks, each by its own clock.
    pub(super) comparisons: Vec<(usize, Compared)>,
    /// How many lines could not be read.
    pub(super) damaged: u64,
    locks: BTreeSet<Rc<str>>,
    kinds: BTreeSet<&'static str>,
}

/// What is known of one member.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) host: String,
    /// By incarnation and number, once they are sorted.
    pub(super) events: Vec<Event>,
    /// The numbers of each incarnation's events, wanted or not.
    pub(super) incarnations: BTreeMap<u64, Numbers>,
    /// By which clock each incarnation was.
    pub(super) clocks: BTreeMap<u64, usize>,
}

/// Which events of an incarnation there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
}

impl Numbers {
    /// How many are missing between the first and the last.
    pub(super) const fn missing(&self) -> u64 {
        (self.last - self.first + 1).saturating_sub(self.count)
    }
}

/// Something that happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) incarnation: u64,
    /// Counts those of the incarnation.
    pub(super) n: u64,
    /// Whose clock it is, of [`Logs::clocks`].
    pub(super) clock: usize,
    /// When, by that clock.
    pub(super) at: u64,
    pub(super) lock: Option<Rc<str>>,
    pub(super) what: What,
}

/// What can happen, as in [`trace::What`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Began,
    Asked {
        request: u64,
    },
    Entered {
        request: u64,
        fence: Option<u64>,
        pid: Option<u32>,
    },
    Left {
        request: u64,
    },
    Ended {
        request: u64,
    },
    Lost {
        request: u64,
        /// When the lease ends, by the event's clock.
        lease_end: Option<u64>,
    },
    Sent {
        message: Message,
        kind: &'static str,
    },
    Received {
        message: Message,
        kind: &'static str,
    },
    View {
        epoch: u32,
        members: Vec<u16>,
    },
    Suspects {
        member: u16,
        heard: Option<u64>,
    },
    Excluded,
    Closed {
        why: Option<Rc<str>>,
    },
}

/// How far another member's clock was believed to be ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    /// Whose, in which incarnation.
    pub(super) other: (u16, u64),
    /// When, by the clock that it was compared with.
    pub(super) at: u64,
    pub(super) ahead_ns: i64,
    pub(super) error_ns: u64,
}

/// What tells a message from all others: both ends, each with its incarnation, and the number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Message {
    pub(super) from: (u16, u64),
    pub(super) to: (u16, u64),
    pub(super) number: u64,
}

impl Logs {
    /// Reads `files`, and those called `.trace` in directories. Of events that concern a lock only
    /// those of `locks` are kept, if there are any.
    ///
    /// # Errors
    /// 64 if a file is no trace, or they do not belong together; 66, 69 or 77 if one cannot be
    /// read.
    pub(super) fn read(files: &[PathBuf], locks: &BTreeSet<String>) -> Result<Self, Failure> {
        let mut logs = Self::default();
        for file in files {
            for file in traces(file)? {
                logs.read_file(&file, locks)?;
            }
        }
        let incarnations = logs.members.iter_mut();
        for (id, member) in incarnations {
            member.sort().map_err(|event| {
                usage(format_args!(
                    "two traces say different things of event {} of member {id}: they are of two \
                     groups of one name; merge one at a time",
                    event.n
                ))
            })?;
        }
        Ok(logs)
    }

    fn read_file(&mut self, path: &Path, locks: &BTreeSet<String>) -> Result<(), Failure> {
        let cannot = |error: &io::Error| cannot_read(path, error);
        let file = File::open(path).map_err(|error| cannot(&error))?;
        let mut reader = BufReader::new(file);
        let (mut line, mut source) = (Vec::new(), None);
        loop {
            line.clear();
            let mut limited = io::Read::take(&mut reader, LONGEST_LINE);
            let read = limited.read_until(b'\n', &mut line);
            if read.map_err(|error| cannot(&error))? == 0 {
                return Ok(());
            }
            if let Ok(head) = serde_json::from_slice::<Head>(&line) {
                source = Some(self.meet(head, path)?);
                continue;
            }
            let Some((id, clock)) = source else {
                return Err(usage(format_args!(
                    "{} is no trace of an agent; name files that 'distlock agent --trace DIR' has \
                     written",
                    quoted(path)
                )));
            };
            match serde_json::from_slice(&line) {
                Ok(entry) => {
                    let event = self.event(entry, id, clock);
                    let is_wanted = |event: &Event| {
                        let lock = event.lock.as_deref();
                        locks.is_empty() || lock.is_none_or(|lock| locks.contains(lock))
                    };
                    let member = self.members.entry(id).or_default();
                    member.events.extend(event.filter(is_wanted));
                }
                // The last line of an incarnation that was killed while it wrote is torn, for one.
                Err(_) => self.damaged += 1,
            }
        }
    }

    /// Another agent's start, or another file: whose events follow, by which clock.
    fn meet(&mut self, head: Head, path: &Path) -> Result<(u16, usize), Failure> {
        if head.distlock_trace != FORMAT {
            return Err(usage(format_args!(
                "{} has format {}, and this program reads {FORMAT}; use the version of distlock \
                 that wrote it",
                quoted(path),
                head.distlock_trace
            )));
        }
        match &self.group {
            Some((group, first)) if *group != head.group => {
                return Err(usage(format_args!(
                    "{} is of group '{group}' and {} of '{}'; merge the traces of one group",
                    quoted(first),
                    quoted(path),
                    head.group
                )));
            }
            Some(_) => {}
            None => self.group = Some((head.group, path.to_owned())),
        }
        let member = self.members.entry(head.member).or_default();
        member.host = head.host;
        let known = self.clocks.iter().position(|clock| clock.0 == head.clock);
        let clock = known.unwrap_or_else(|| {
            self.clocks.push((head.clock, head.at, head.wall));
            self.clocks.len() - 1
        });
        Ok((head.member, clock))
    }

    /// `None` if it only tells of clocks.
    fn event(&mut self, entry: trace::Entry, id: u16, clock: usize) -> Option<Event> {
        let trace::Entry {
            incarnation,
            n,
            at,
            what,
        } = entry;
        self.members
            .entry(id)
            .or_default()
            .count(incarnation, n, clock);
        if let trace::What::Compared {
            member,
            incarnation,
            measured,
            ahead_ns,
            error_ns,
        } = what
        {
            let compared = Compared {
                other: (member, incarnation),
                at: measured,
                ahead_ns,
                error_ns,
            };
            self.comparisons.push((clock, compared));
            return None;
        }
        let (what, lock) = self.what(what, (id, incarnation))?;
        Some(Event {
            incarnation,
            n,
            clock,
            at,
            lock,
            what,
        })
    }

    fn what(&mut self, what: trace::What, me: (u16, u64)) -> Option<(What, Option<Rc<str>>)> {
        let of = |logs: &mut Self, what, lock: String| (what, Some(logs.lock(lock)));
        Some(match what {
            trace::What::Began => (What::Began, None),
            trace::What::Asked { request, lock } => of(self, What::Asked { request }, lock),
            trace::What::Entered {
                request,
                lock,
                fence,
                pid,
            } => {
                let what = What::Entered {
                    request,
                    fence,
                    pid,
                };
                of(self, what, lock)
            }
            trace::What::Left { request, lock } => of(self, What::Left { request }, lock),
            trace::What::Ended { request, lock } => of(self, What::Ended { request }, lock),
            trace::What::Lost {
                request,
                lock,
                lease_end,
            } => of(self, What::Lost { request, lease_end }, lock),
            trace::What::Sent {
                to,
                to_incarnation,
                number,
                kind,
                lock,
            } => {
                let message = Message {
                    from: me,
                    to: (to, to_incarnation),
                    number,
                };
                let kind = self.kind(&kind);
                of(self, What::Sent { message, kind }, lock)
            }
            trace::What::Received {
                from,
                from_incarnation,
                number,
                kind,
                lock,
            } => {
                let message = Message {
                    from: (from, from_incarnation),
                    to: me,
                    number,
                };
                let kind = self.kind(&kind);
                of(self, What::Received { message, kind }, lock)
            }
            trace::What::View { epoch, members } => (What::View { epoch, members }, None),
            trace::What::Suspects { member, heard } => (What::Suspects { member, heard }, None),
            trace::What::Compared { .. } => return None,
            trace::What::Excluded => (What::Excluded, None),
            trace::What::Closed { why } => {
                let why = why.map(Rc::from);
                (What::Closed { why }, None)
            }
        })
    }

    /// The same text again and again takes room once.
    fn lock(&mut self, lock: String) -> Rc<str> {
        if let Some(known) = self.locks.get(lock.as_str()) {
            return Rc::clone(known);
        }
        let lock: Rc<str> = lock.into();
        self.locks.insert(Rc::clone(&lock));
        lock
    }

    /// There are few kinds of messages, and this program ends soon.
    fn kind(&mut self, kind: &str) -> &'static str {
        if let Some(known) = self.kinds.get(kind) {
            return known;
        }
        let kind: &'static str = Box::leak(kind.into());
        self.kinds.insert(kind);
        kind
    }
}

impl Member {
    fn count(&mut self, incarnation: u64, n: u64, clock: usize) {
        let numbers = self.incarnations.entry(incarnation).or_insert(Numbers {
            first: n,
            last: n,
            count: 0,
        });
        numbers.first = numbers.first.min(n);
        numbers.last = numbers.last.max(n);
        numbers.count += 1;
        self.clocks.insert(incarnation, clock);
    }

    /// Sorts the events, and drops those that come twice.
    ///
    /// # Errors
    /// One that is two different ones.
    fn sort(&mut self) -> Result<(), Event> {
        self.events
            .sort_by_key(|event| (event.incarnation, event.n));
        let twice = self.events.windows(2).find(|pair| {
            (pair[0].incarnation, pair[0].n) == (pair[1].incarnation, pair[1].n)
                && pair[0] != pair[1]
        });
        if let Some(pair) = twice {
            return Err(pair[1].clone());
        }
        self.events.dedup();
        Ok(())
    }
}

/// The file, or those in the directory.
fn traces(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| cannot_read(path, &error))?;
    let files = entries.into_iter().map(|entry| entry.path());
    let is_trace = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "trace");
    let mut files: Vec<_> = files.filter(is_trace).collect();
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(
            NO_INPUT,
            format_args!(
                "{} has no file called .trace; name the directory that --trace named",
                quoted(path)
            ),
        ));
    }
    Ok(files)
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        refusal::code_of(error),
        format_args!(
            "cannot read {}: {error}; name a trace that you may read",
            quoted(path)
        ),
    )
}
