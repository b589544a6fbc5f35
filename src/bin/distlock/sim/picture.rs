//! A run as what a space-time diagram shows of it: a line for each process, bars for waiting and
//! for critical sections, arrows for messages. Times are in T, from the left edge on.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_agent::protocol::{NodeId, Time};
use distlock_agent::sim::history::{Moment, What};

/// What is drawn.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    /// The processes' names, from top to bottom.
    pub(crate) lanes: Vec<String>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) arrows: Vec<Arrow>,
    /// Who asks when, and with which timestamp, where that is to be seen.
    pub(crate) asks: Vec<(usize, f64, u64)>,
    pub(crate) crashes: Vec<(usize, f64)>,
    pub(crate) views: Vec<View>,
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
    pub(crate) members: Vec<NodeId>,
    pub(crate) installed: Vec<(usize, f64)>,
}

/// What a picture is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Film<'a> {
    /// What happened.
    pub(crate) history: &'a [Moment],
    /// The left edge, and the right one.
    pub(crate) span: (Time, Time),
    /// T.
    pub(crate) unit: Duration,
    /// How many processes.
    pub(crate) members: u16,
    /// The number of the first process: 1, or 0 where a lecture counts so.
    pub(crate) first: u16,
    /// Whether requests show their timestamps.
    pub(crate) has_stamps: bool,
    /// How long after the last that was sent nothing is lost, but may still be under way, in T.
    pub(crate) patience: f64,
}

impl<'a> Film<'a> {
    /// What happens between the edges.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &'a Moment> + use<'a> {
        let (from, to) = self.span;
        let moments = self.history.iter();
        moments.filter(move |moment| moment.at >= from && moment.at <= to)
    }

    /// When something happens, in T from the left edge; negative before it.
    pub(crate) fn time(&self, at: Time) -> f64 {
        let nanos = at.as_nanos() as f64 - self.span.0.as_nanos() as f64;
        nanos / self.unit.as_nanos() as f64
    }

    /// What a process is called.
    pub(crate) fn name(&self, node: NodeId) -> String {
        (node.as_u16() - 1 + self.first).to_string()
    }
}

impl Picture {
    pub(crate) fn new(film: &Film<'_>) -> Self {
        let names = (1..=film.members).filter_map(NodeId::new);
        let mut painter = Painter {
            film,
            asked: BTreeMap::new(),
            entered: BTreeMap::new(),
            stamps: BTreeMap::new(),
            sent: BTreeMap::new(),
            picture: Self {
                lanes: names
                    .map(|node| format!("process {}", film.name(node)))
                    .collect(),
                length: film.time(film.span.1),
                ..Self::default()
            },
        };
        for moment in film.history {
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
        let mut times: Vec<f64> = arrows.chain(bars).chain(points).collect();
        times.extend([0.0, self.length]);
        times.retain(|time| (0.0..=self.length).contains(time));
        times.sort_by(f64::total_cmp);
        times
    }
}

/// Goes through a history, with what is not over yet.
struct Painter<'a> {
    film: &'a Film<'a>,
    /// Who waits, and since when.
    asked: BTreeMap<usize, f64>,
    /// Who is inside, and since when.
    entered: BTreeMap<usize, f64>,
    stamps: BTreeMap<usize, u64>,
    /// Which arrow a message is.
    sent: BTreeMap<u64, usize>,
    picture: Picture,
}

impl Painter<'_> {
    fn add(&mut self, moment: &Moment) {
        let (at, lane) = (self.film.time(moment.at), lane(moment.node));
        match &moment.what {
            What::Asked { stamp, .. } => {
                self.asked.insert(lane, at);
                if let Some(stamp) = stamp {
                    self.stamps.insert(lane, *stamp);
                }
                if let Some(stamp) = stamp.filter(|_| self.film.has_stamps && at >= 0.0) {
                    self.picture.asks.push((lane, at, stamp));
                }
            }
            What::Entered { .. } => {
                self.end(lane, at, State::Waiting);
                self.entered.insert(lane, at);
            }
            What::Left { .. } | What::Lost { .. } => self.end(lane, at, State::Inside),
            What::Crashed => {
                self.end(lane, at, State::Waiting);
                self.end(lane, at, State::Inside);
                self.picture.crashes.push((lane, at));
            }
            What::Sent {
                message,
                to,
                kind,
                again,
            } => {
                self.sent.insert(*message, self.picture.arrows.len());
                let is_stamped = self.film.has_stamps && *kind == "REQUEST";
                self.picture.arrows.push(Arrow {
                    from: lane,
                    to: self::lane(*to),
                    sent: at,
                    fate: Fate::Lost,
                    kind,
                    stamp: self.stamps.get(&lane).copied().filter(|_| is_stamped),
                    again: *again,
                });
            }
            What::Received { message } => {
                let arrow = self
                    .sent
                    .get(message)
                    .map(|arrow| &mut self.picture.arrows[*arrow]);
                if let Some(arrow) = arrow.filter(|arrow| arrow.fate == Fate::Lost) {
                    arrow.fate = Fate::Arrived(at);
                }
            }
            What::View { members, .. } => self.install(lane, at, members),
        }
    }

    /// Ends what a process does, if it does that.
    fn end(&mut self, lane: usize, at: f64, state: State) {
        let begun = match state {
            State::Waiting => self.asked.remove(&lane),
            State::Inside => self.entered.remove(&lane),
        };
        let Some(from) = begun.map(|from| from.max(0.0)).filter(|from| *from < at) else {
            return;
        };
        let to = at.min(self.picture.length);
        self.picture.bars.push(Bar {
            lane,
            from,
            to,
            state,
        });
    }

    fn install(&mut self, lane: usize, at: f64, members: &[NodeId]) {
        if at < 0.0 {
            return;
        }
        let views = &mut self.picture.views;
        match views.iter_mut().find(|view| view.members == members) {
            Some(view) => view.installed.push((lane, at)),
            None => views.push(View {
                at,
                members: members.to_vec(),
                installed: vec![(lane, at)],
            }),
        }
    }

    fn finish(mut self) -> Picture {
        let length = self.picture.length;
        for lane in 0..self.picture.lanes.len() {
            self.end(lane, length, State::Waiting);
            self.end(lane, length, State::Inside);
        }
        for arrow in &mut self.picture.arrows {
            if arrow.fate == Fate::Lost && arrow.sent + self.film.patience > length {
                arrow.fate = Fate::UnderWay;
            }
        }
        // What left before the left edge is of interest only if it is still under way there.
        self.picture.arrows.retain(|arrow| match arrow.fate {
            Fate::Arrived(at) => at >= 0.0,
            Fate::Lost | Fate::UnderWay => arrow.sent >= 0.0,
        });
        self.picture
    }
}

fn lane(node: NodeId) -> usize {
    usize::from(node.as_u16()) - 1
}
