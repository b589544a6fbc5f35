//! What happened, where and when: what diagrams, logs and stories are made of.

use std::rc::Rc;

/// What happened in a group.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// What happened, in an order in which nothing comes before its cause.
    pub(crate) history: Vec<Moment>,
    /// The left edge, and the right one, in nanoseconds.
    pub(crate) span: (u64, u64),
    /// The time that one step of the diagram takes, in nanoseconds.
    pub(crate) unit: f64,
    /// How times are told.
    pub(crate) measure: Measure,
    /// The processes, from top to bottom.
    pub(crate) lanes: Vec<Lane>,
    /// Whether requests show their timestamps.
    pub(crate) has_stamps: bool,
    /// How long after it was sent a message may still be under way when the timeline ends, in units.
    pub(crate) patience: f64,
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// What it is.
    pub(crate) noun: &'static str,
    /// Which.
    pub(crate) number: u16,
    /// Until when it is known what happened to it, in nanoseconds; `None` where nothing is.
    pub(crate) known_until: Option<u64>,
}

/// Something that happened at one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// When, in nanoseconds.
    pub(crate) at: u64,
    /// Where.
    pub(crate) lane: usize,
    /// Of which lock, if it is of one and there may be several.
    pub(crate) lock: Option<Rc<str>>,
    /// What.
    pub(crate) what: What,
}

/// What can happen at a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A caller asks to enter.
    Asked { request: u64, stamp: Option<u64> },
    /// It enters, with that fence if there are fences, in that process if it is known.
    Entered {
        request: u64,
        fence: Option<u64>,
        pid: Option<u32>,
    },
    /// It leaves.
    Left { request: u64 },
    /// It waits no longer.
    Ended { request: u64 },
    /// It is told that what it was granted is lost, as its lease ends then, if that is known.
    Lost {
        request: u64,
        lease_end: Option<u64>,
    },
    /// A message goes out.
    Sent {
        /// The number of this transmission.
        message: u64,
        to: usize,
        kind: &'static str,
        /// Whether the link sends it once more.
        again: bool,
    },
    /// A message arrives.
    Received {
        from: usize,
        kind: &'static str,
        /// Which transmission has arrived, if that is known.
        message: Option<u64>,
        /// The first transmission of the message, which all that its receiver does later follows
        /// from.
        cause: Option<u64>,
    },
    /// A new view is in force here.
    View { epoch: u32, members: Vec<u16> },
    /// Another process has been silent for long.
    Suspects { lane: usize },
    /// A view has gone on without this process, which goes on as another.
    Excluded,
    /// Its process begins.
    Began,
    /// Its process ends in good order, or for that reason.
    Closed { why: Option<Rc<str>> },
    /// Its process ends without a word.
    Crashed,
}

/// How times are told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// In units: T, a message's time on the way.
    T,
    /// In milliseconds, of which a unit has so many.
    Millis(f64),
}

impl Timeline {
    /// What happens between the edges.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Moment> {
        let (from, to) = self.span;
        let moments = self.history.iter();
        moments.filter(move |moment| moment.at >= from && moment.at <= to)
    }

    /// When something happens, in units from the left edge; negative before it.
    pub(crate) fn time(&self, at: u64) -> f64 {
        // As whole numbers, as dates in nanoseconds have more digits than a fraction keeps.
        (i128::from(at) - i128::from(self.span.0)) as f64 / self.unit
    }

    /// When something happens, in words.
    pub(crate) fn time_in_words(&self, at: u64) -> String {
        self.measure.tell(self.time(at))
    }

    /// The number of a process.
    pub(crate) fn number(&self, lane: usize) -> u16 {
        self.lanes[lane].number
    }
}

impl Lane {
    /// What it is called.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.noun, self.number)
    }
}

impl Measure {
    /// So many units, in words.
    pub(crate) fn tell(self, units: f64) -> String {
        match self {
            Self::T => format!("{units:.2} T"),
            Self::Millis(each) => format!("{:.3} ms", units * each),
        }
    }

    /// So many units, in words, to the last digit that counts.
    pub(crate) fn tell_exactly(self, units: f64) -> String {
        match self {
            Self::T => format!("{units:.3} T"),
            Self::Millis(each) => format!("{:.6} ms", units * each),
        }
    }

    /// Many units, roughly.
    pub(crate) fn tell_roughly(self, units: f64) -> String {
        match self {
            Self::T => format!("{units:.0} T"),
            Self::Millis(each) => match units * each {
                millis if millis < 10.0 => format!("{millis:.2} ms"),
                millis if millis < 10_000.0 => format!("{millis:.0} ms"),
                millis => format!("{:.1} s", millis / 1_000.0),
            },
        }
    }

    /// The mark at so many units.
    pub(crate) fn mark(self, units: u64) -> String {
        match self {
            Self::T => units.to_string(),
            Self::Millis(each) => {
                // As many digits as the unit has.
                let is_shown = |digits: &usize| each * 10_u32.pow(*digits as u32) as f64 > 0.999;
                let digits = (0..6).find(is_shown).unwrap_or(6);
                format!("{:.digits$}", units as f64 * each)
            }
        }
    }

    /// What the axis shows.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::T => "time in T",
            Self::Millis(_) => "time in ms",
        }
    }
}
