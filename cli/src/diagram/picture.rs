//! A timeline as what a space-time diagram shows of it: a line for each process, bars for waiting and
//! for critical sections, arrows for messages. Times are in units, from the left edge on.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::timeline::{Measure, Moment, Timeline, What};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Picture {
    /// How times are told.
    pub(crate) measure: Measure,
    /// The processes' names, from top to bottom, and whether anything is known of them.
    pub(crate) lanes: Vec<(String, bool)>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) arrows: Vec<Arrow>,
    /// Who asks when, and with which timestamp, where that is to be seen.
    pub(crate) asks: Vec<(usize, f64, u64)>,
    pub(crate) crashes: Vec<(usize, f64)>,
    /// Who ends otherwise, when, and why.
    pub(crate) ends: Vec<(usize, f64, Option<Rc<str>>)>,
    /// When the lease ends of a holder that loses its lock.
    pub(crate) lease_ends: Vec<(usize, f64)>,
    /// From when to when a process does not run.
    pub(crate) absences: Vec<(usize, f64, f64)>,
    pub(crate) views: Vec<View>,
    /// Whether several locks are in it, so that it matters which is which.
    pub(crate) has_locks: bool,
    /// How long it lasts.
    pub(crate) length: f64,
}

/// A time that a process spends waiting or inside.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) lane: usize,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) state: State,
    pub(crate) lock: Option<Rc<str>>,
    /// The holder's fence, if it is known; none while it waits.
    pub(crate) fence: Option<u64>,
    /// The holder's process, if it is known; none while it waits.
    pub(crate) pid: Option<u32>,
}

/// What a process does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Inside,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) sent: f64,
    pub(crate) fate: Fate,
    pub(crate) kind: &'static str,
    /// What it says besides its kind.
    pub(crate) stamp: Option<u64>,
    /// Whether the link sent it once more.
    pub(crate) again: bool,
    pub(crate) lock: Option<Rc<str>>,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Arrived(f64),
    Lost,
    /// The picture ends before that is known.
    UnderWay,
}

/// The first installation of a view.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) at: f64,
    pub(crate) epoch: u32,
    pub(crate) members: Vec<u16>,
    pub(crate) installed: Vec<(usize, f64)>,
}

impl Picture {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let mut painter = Painter {
            timeline,
            open: BTreeMap::new(),
            gone: BTreeMap::new(),
            stamps: BTreeMap::new(),
            sent: BTreeMap::new(),
            picture: Self {
                measure: timeline.measure,
                lanes: timeline
                    .lanes
                    .iter()
                    .map(|lane| (lane.name(), lane.known_until.is_some()))
                    .collect(),
                bars: Vec::new(),
                arrows: Vec::new(),
                asks: Vec::new(),
                crashes: Vec::new(),
                ends: Vec::new(),
                lease_ends: Vec::new(),
                absences: Vec::new(),
                views: Vec::new(),
                has_locks: false,
                length: timeline.time(timeline.span.1),
            },
        };
        for moment in &timeline.history {
            painter.add(moment);
        }
        painter.finish()
    }

    /// The kinds of messages, in the order of their first use.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for arrow in &self.arrows {
            if !kinds.contains(&arrow.kind) {
                kinds.push(arrow.kind);
            }
        }
        kinds
    }

    /// All times at which something happens, in order.
    pub(crate) fn times(&self) -> Vec<f64> {
        let arrows = self.arrows.iter().flat_map(|arrow| match arrow.fate {
            Fate::Arrived(at) => vec![arrow.sent, at],
            Fate::Lost | Fate::UnderWay => vec![arrow.sent, arrow.sent + 1.0],
        });
        let bars = self.bars.iter().flat_map(|bar| [bar.from, bar.to]);
        let views = self.views.iter().flat_map(|view| &view.installed);
        let points = views.chain(&self.crashes).map(|(_, at)| *at);
        let lease_ends = self.lease_ends.iter().map(|(_, at)| *at);
        let ends = self.ends.iter().map(|(_, at, _)| *at).chain(lease_ends);
        let absences = self.absences.iter().flat_map(|(_, from, to)| [*from, *to]);
        let mut times: Vec<f64> = arrows
            .chain(bars)
            .chain(points)
            .chain(ends)
            .chain(absences)
            .collect();
        times.extend([0.0, self.length]);
        times.retain(|time| (0.0..=self.length).contains(time));
        times.sort_by(f64::total_cmp);
        times
    }
}

/// What a request does.
struct Open {
    state: State,
    since: f64,
    lock: Option<Rc<str>>,
    fence: Option<u64>,
    pid: Option<u32>,
}

/// Goes through a timeline, with what is not over yet.
struct Painter<'a> {
    timeline: &'a Timeline,
    /// Which requests of which lane wait or are inside, and since when.
    open: BTreeMap<(usize, u64), Open>,
    /// Who does not run, and since when.
    gone: BTreeMap<usize, f64>,
    stamps: BTreeMap<usize, u64>,
    /// Which arrow a message is.
    sent: BTreeMap<u64, usize>,
    picture: Picture,
}

impl Painter<'_> {
    fn add(&mut self, moment: &Moment) {
        let (at, lane) = (self.timeline.time(moment.at), moment.lane);
        match &moment.what {
            What::Asked { request, stamp } => {
                self.begin((lane, *request), at, State::Waiting, moment);
                if let Some(stamp) = stamp {
                    self.stamps.insert(lane, *stamp);
                }
                if let Some(stamp) = stamp.filter(|_| self.timeline.has_stamps && at >= 0.0) {
                    self.picture.asks.push((lane, at, stamp));
                }
            }
            What::Entered { request, .. } => {
                self.end((lane, *request), at);
                self.begin((lane, *request), at, State::Inside, moment);
            }
            What::Left { request } | What::Ended { request } => self.end((lane, *request), at),
            What::Lost { request, lease_end } => {
                // After the lease it is not inside, though it learns that later.
                let end = lease_end.map(|end| self.timeline.time(end));
                self.end((lane, *request), end.map_or(at, |end| end.min(at)));
                if let Some(end) = end.filter(|end| (0.0..=self.picture.length).contains(end))
                    && !self.picture.lease_ends.contains(&(lane, end))
                {
                    self.picture.lease_ends.push((lane, end));
                }
            }
            What::Crashed => {
                self.end_all(lane, at);
                self.gone.insert(lane, at);
                if at >= 0.0 && at <= self.picture.length {
                    self.picture.crashes.push((lane, at));
                }
            }
            What::Closed { why } => {
                self.end_all(lane, at);
                self.gone.insert(lane, at);
                if at >= 0.0 && at <= self.picture.length {
                    self.picture.ends.push((lane, at, why.clone()));
                }
            }
            What::Began => {
                let since = self.gone.remove(&lane).unwrap_or(0.0);
                self.absent(lane, since, at);
            }
            What::Sent { .. } => self.send(moment, at),
            What::Received { message, .. } => {
                let arrow = message.and_then(|message| self.sent.get(&message));
                let arrow = arrow.map(|arrow| &mut self.picture.arrows[*arrow]);
                if let Some(arrow) = arrow.filter(|arrow| arrow.fate == Fate::Lost) {
                    arrow.fate = Fate::Arrived(at);
                }
            }
            What::View { epoch, members } => self.install(lane, at, *epoch, members),
            What::Suspects { .. } | What::Excluded => {}
        }
    }

    fn send(&mut self, moment: &Moment, at: f64) {
        let What::Sent {
            message,
            to,
            kind,
            again,
        } = moment.what
        else {
            return;
        };
        self.sent.insert(message, self.picture.arrows.len());
        let is_stamped = self.timeline.has_stamps && kind == "REQUEST";
        let stamp = self.stamps.get(&moment.lane).copied();
        self.picture.arrows.push(Arrow {
            from: moment.lane,
            to,
            sent: at,
            fate: Fate::Lost,
            kind,
            stamp: stamp.filter(|_| is_stamped),
            again,
            lock: moment.lock.clone(),
        });
    }

    fn begin(&mut self, request: (usize, u64), since: f64, state: State, moment: &Moment) {
        let (fence, pid) = match moment.what {
            What::Entered { fence, pid, .. } => (fence, pid),
            _ => (None, None),
        };
        let open = Open {
            state,
            since,
            lock: moment.lock.clone(),
            fence,
            pid,
        };
        self.open.insert(request, open);
    }

    /// Ends what a request does, if it does anything.
    fn end(&mut self, request: (usize, u64), at: f64) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        let since = open.since;
        let (from, to) = (since.max(0.0), at.min(self.picture.length));
        if from < to {
            self.picture.bars.push(Bar {
                lane: request.0,
                from,
                to,
                state: open.state,
                lock: open.lock,
                fence: open.fence,
                pid: open.pid,
            });
        }
    }

    fn end_all(&mut self, lane: usize, at: f64) {
        let open = self.open.range((lane, 0)..=(lane, u64::MAX));
        let requests: Vec<_> = open.map(|(request, _)| *request).collect();
        for request in requests {
            self.end(request, at);
        }
    }

    fn absent(&mut self, lane: usize, from: f64, to: f64) {
        let (from, to) = (from.max(0.0), to.min(self.picture.length));
        if from < to {
            self.picture.absences.push((lane, from, to));
        }
    }

    fn install(&mut self, lane: usize, at: f64, epoch: u32, members: &[u16]) {
        if at < 0.0 || at > self.picture.length {
            return;
        }
        let mut views = self.picture.views.iter_mut();
        match views.find(|view| view.epoch == epoch && view.members == members) {
            Some(view) => view.installed.push((lane, at)),
            None => self.picture.views.push(View {
                at,
                epoch,
                members: members.to_vec(),
                installed: vec![(lane, at)],
            }),
        }
    }

    fn finish(mut self) -> Picture {
        let length = self.picture.length;
        for lane in 0..self.picture.lanes.len() {
            self.end_all(lane, length);
        }
        for (lane, since) in std::mem::take(&mut self.gone) {
            self.absent(lane, since, length);
        }
        for arrow in &mut self.picture.arrows {
            let known = self.timeline.lanes[arrow.to].known_until;
            let known = known
                .map_or(0.0, |until| self.timeline.time(until))
                .min(length);
            if arrow.fate == Fate::Lost && arrow.sent + self.timeline.patience > known {
                arrow.fate = Fate::UnderWay;
            }
        }
        // What left before the left edge is of interest only if it is still under way there.
        self.picture.arrows.retain(|arrow| {
            arrow.sent <= length
                && match arrow.fate {
                    Fate::Arrived(at) => at >= 0.0,
                    Fate::Lost | Fate::UnderWay => arrow.sent >= 0.0,
                }
        });
        let bars = self.picture.bars.iter().map(|bar| &bar.lock);
        let arrows = self.picture.arrows.iter().map(|arrow| &arrow.lock);
        let locks: BTreeSet<_> = bars.chain(arrows).flatten().collect();
        self.picture.has_locks = locks.len() > 1;
        self.picture
    }
}
