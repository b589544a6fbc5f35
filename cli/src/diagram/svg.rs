//! A picture as a space-time diagram: one SVG that needs nothing else, light or dark as the reader
//! likes it.
//!
//! Elements are written as text: the svg crate would make a call of each attribute, and has no layout.

mod elements;
mod legend;

use std::fmt::{Display, Write as _};

use super::axis::{Axis, GAP};
use super::labels::{Area, Line, Page, width};
use super::picture::{Arrow, Bar, Fate, Picture, State};
pub(super) use elements::escape;
use elements::{STAY, WAIT, colour, cross, lease_end, line, note, tip};
use legend::signs;

/// How the diagram looks, here and in a page.
const STYLE: &str = include_str!("style.css");

/// Up to so many messages each has its name beside it; with more, colours must do.
const NAMED: usize = 40;

/// Up to so many units are drawn wide.
const SHORT: f64 = 16.0;

/// The diagram. `title` says what it shows.
pub(crate) fn svg(picture: &Picture, title: &str) -> String {
    Drawing::new(picture).finish(title)
}

/// A diagram that is being drawn.
struct Drawing<'a> {
    picture: &'a Picture,
    kinds: Vec<&'static str>,
    axis: Axis,
    page: Page,
    is_named: bool,
    /// From lane to lane.
    step: f64,
    /// Of the first lane.
    top: f64,
    left: f64,
    /// Of everything.
    width: f64,
    text: String,
}

impl<'a> Drawing<'a> {
    fn new(picture: &'a Picture) -> Self {
        let is_named = picture.arrows.len() <= NAMED;
        let lanes = picture.lanes.len();
        let (scale, step) = match lanes {
            _ if is_named && picture.length <= SHORT => (150.0, 120.0),
            _ if is_named => (110.0, 110.0),
            0..=8 => (40.0, 64.0),
            9..=20 => (40.0, 40.0),
            _ => (40.0, 22.0),
        };
        let names = picture.lanes.iter().map(|(name, _)| width(name));
        let names = names.fold(0.0, f64::max).max(width(picture.measure.name()));
        let left = 28.0 + names;
        let axis = Axis::new(&picture.times(), left, scale);
        let mut drawing = Self {
            picture,
            kinds: picture.kinds(),
            width: (axis.end + 40.0).max(760.0),
            axis,
            page: Page::default(),
            is_named,
            step,
            top: 0.0,
            left,
            text: String::new(),
        };
        let legend = drawing.legend(54.0);
        drawing.top = legend + if picture.views.is_empty() { 48.0 } else { 64.0 };
        drawing
    }

    fn finish(mut self, title: &str) -> String {
        self.gaps();
        self.lanes();
        self.bars();
        self.arrows();
        self.views();
        self.crashes();
        self.ends();
        self.lease_ends();
        self.words();
        let bottom = self.marks();
        let (width, height) = (self.width, bottom + 24.0);
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"diagram\" role=\"img\" \
             aria-label=\"{title}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
             {}</svg>\n",
            self.text
        )
    }

    fn y(&self, lane: usize) -> f64 {
        self.top + lane as f64 * self.step
    }

    /// Below the last lane.
    fn bottom(&self) -> f64 {
        self.y(self.picture.lanes.len() - 1) + self.step.min(64.0) / 2.0
    }

    /// What the signs mean; returns where it ends.
    fn legend(&mut self, top: f64) -> f64 {
        let (mut x, mut y) = (16.0, top);
        for (sign, word) in signs(self.picture, &self.kinds) {
            let wide = 26.0 + 8.0 + width(&word) + 20.0;
            if x > 16.0 && x + wide > 900.0_f64.min(self.width) {
                (x, y) = (16.0, y + 24.0);
            }
            self.put(format_args!(
                "<g transform=\"translate({x:.1} {y:.1})\">{sign}\
                 <text x=\"34\" y=\"4\">{word}</text></g>"
            ));
            x += wide;
        }
        y
    }

    /// Where nothing happens for long.
    fn gaps(&mut self) {
        let (top, bottom) = (self.top - self.step.min(40.0) / 2.0, self.bottom());
        for (x, _) in self.axis.gaps.clone() {
            for x in [x + 4.0, x + GAP - 4.0] {
                self.put(line("gap", ((x, top), (x, bottom))));
            }
        }
    }

    fn lanes(&mut self) {
        let end = self.axis.end;
        for (lane, (name, is_known)) in self.picture.lanes.iter().enumerate() {
            let y = self.y(lane);
            let left = self.left;
            let unknown = if *is_known { "" } else { ", no log" };
            self.put(format_args!(
                "<text x=\"16\" y=\"{:.1}\">{name}{unknown}</text>",
                y + 4.0
            ));
            let absences = self.picture.absences.iter();
            let absences = absences.filter(|absence| absence.0 == lane);
            let mut from = left;
            let mut absences: Vec<_> = absences
                .map(|(_, from, to)| (self.axis.x(*from), self.axis.x(*to)))
                .collect();
            if !is_known {
                absences.push((left, end));
            }
            for (gone, back) in absences {
                if gone > from {
                    self.lane("lane", (from, gone), y);
                }
                self.lane("lane dead", (gone, back), y);
                from = back;
            }
            if end > from {
                self.lane("lane", (from, end), y);
            }
            self.page.lines.push(((left, y), (end, y)));
        }
    }

    /// A part of a process's line.
    fn lane(&mut self, class: &str, (from, to): (f64, f64), y: f64) {
        self.put(line(class, ((from, y), (to, y))));
    }

    fn bars(&mut self) {
        for bar in &self.picture.bars {
            let area = self.area(bar);
            let class = match bar.state {
                State::Waiting => "wait",
                State::Inside => "stay",
            };
            let what = match bar.state {
                State::Waiting => "waits",
                State::Inside => "is in the critical section",
            };
            let (name, _) = &self.picture.lanes[bar.lane];
            let [from, to] = [bar.from, bar.to].map(|time| self.picture.measure.tell(time));
            let lock = self.of_lock(bar.lock.as_deref());
            let fence = bar.fence.map(|fence| format!(", with fence {fence}"));
            let fence = fence.unwrap_or_default();
            let pid = bar.pid.map(|pid| format!(", as process {pid}"));
            let pid = pid.unwrap_or_default();
            self.put(format_args!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>{name} {what}{lock} from {from} to {to}{fence}{pid}</title></rect>",
                area.left,
                area.top,
                (area.right - area.left).max(1.0),
                area.bottom - area.top
            ));
            self.page.bars.push(area);
        }
    }

    fn area(&self, bar: &Bar) -> Area {
        let half = match bar.state {
            State::Waiting => WAIT,
            State::Inside => STAY.min(self.step / 3.0),
        };
        let y = self.y(bar.lane);
        Area {
            left: self.axis.x(bar.from),
            top: y - half,
            right: self.axis.x(bar.to),
            bottom: y + half,
        }
    }

    fn arrows(&mut self) {
        for arrow in &self.picture.arrows {
            let line = self.line(arrow);
            let ((x1, y1), (x2, y2)) = line;
            let kind = colour(arrow.kind);
            let again = if arrow.again { " again" } else { "" };
            let end = match arrow.fate {
                Fate::Arrived(_) => tip(line),
                Fate::Lost => cross("lost", (x2, y2), 4.0),
                Fate::UnderWay => String::new(),
            };
            let tooltip = self.tooltip(arrow);
            self.put(format_args!(
                "<g class=\"message k{kind}{again}\"><title>{tooltip}</title>\
                 <line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>{end}</g>"
            ));
            self.page.lines.push(line);
        }
    }

    /// From where to where it is drawn: what is lost gets half the way, what is under way at an
    /// edge goes up to it.
    fn line(&self, arrow: &Arrow) -> Line {
        let (from, to) = (self.y(arrow.from), self.y(arrow.to));
        let arrival = match arrow.fate {
            Fate::Arrived(at) => at,
            Fate::Lost | Fate::UnderWay => arrow.sent + 1.0,
        };
        let share = |time: f64| (time - arrow.sent) / (arrival - arrow.sent).max(1e-9);
        let at = |time: f64| (self.axis.x(time), from + (to - from) * share(time));
        let end = match arrow.fate {
            Fate::Arrived(at) => at,
            Fate::Lost => arrow.sent + 0.5,
            Fate::UnderWay => arrival.min(self.picture.length),
        };
        (at(arrow.sent.max(0.0)), at(end))
    }

    fn tooltip(&self, arrow: &Arrow) -> String {
        let name = |lane: usize| &self.picture.lanes[lane].0;
        let tell = |time| self.picture.measure.tell(time);
        let fate = match arrow.fate {
            Fate::Arrived(at) => format!("arrives at {}", tell(at)),
            Fate::Lost => "never arrives".to_owned(),
            Fate::UnderWay => "is under way at the end".to_owned(),
        };
        let (from, to, sent) = (name(arrow.from), name(arrow.to), tell(arrow.sent));
        let lock = self.of_lock(arrow.lock.as_deref());
        format!(
            "{}{lock} from {from} to {to}, sent at {sent}, {fate}",
            caption(arrow)
        )
    }

    /// Which lock it is, where that is a question.
    fn of_lock(&self, lock: Option<&str>) -> String {
        let lock = lock.filter(|_| self.picture.has_locks);
        lock.map_or_else(String::new, |lock| format!(" of {}", escape(lock)))
    }

    /// When each member goes on without others.
    fn views(&mut self) {
        for view in &self.picture.views {
            let members: Vec<_> = view.members.iter().map(u16::to_string).collect();
            let words = format!("view of {}", members.join(", "));
            for (lane, at) in &view.installed {
                let (x, y) = (self.axis.x(*at), self.y(*lane));
                let at = self.picture.measure.tell(*at);
                self.put(format_args!(
                    "<path class=\"view\" d=\"M{x:.1} {:.1}l5 6l-5 6l-5 -6z\"><title>{} installs \
                     the {words} at {at}</title></path>",
                    y - 6.0,
                    self.picture.lanes[*lane].0
                ));
            }
            let half = width(&words) / 2.0;
            let x = self
                .axis
                .x(view.at)
                .clamp(self.left + half, self.width - half);
            let above = self.top - self.step.min(64.0) / 2.0;
            if let Some((x, y)) = self
                .page
                .place(&words, [(x, above), (x, above - 16.0)], None)
            {
                self.word("word", (x, y), &words);
            }
        }
    }

    fn crashes(&mut self) {
        for (lane, at) in &self.picture.crashes {
            let (x, y) = (self.axis.x(*at), self.y(*lane));
            let sign = cross("crash", (x, y), 8.0);
            let (name, _) = &self.picture.lanes[*lane];
            let at = self.picture.measure.tell(*at);
            self.put(format_args!(
                "<g><title>{name} crashes at {at}</title>{sign}</g>"
            ));
            self.page.reserve(Area {
                left: x - 10.0,
                top: y - 10.0,
                right: x + 10.0,
                bottom: y + 10.0,
            });
            let places = [
                (x + 34.0, y - 16.0),
                (x + 34.0, y + 18.0),
                (x - 34.0, y - 16.0),
            ];
            if let Some(place) = self.page.place("crash", places, None) {
                self.word("word bad", place, "crash");
            }
        }
    }

    /// Who ends in good order, or for a reason that is known.
    fn ends(&mut self) {
        for (lane, at, why) in &self.picture.ends {
            let (x, y) = (self.axis.x(*at), self.y(*lane));
            let (name, _) = &self.picture.lanes[*lane];
            let at = self.picture.measure.tell(*at);
            let why = why.as_deref().map(|why| format!(": {}", escape(why)));
            let why = why.unwrap_or_default();
            self.put(format_args!(
                "<line class=\"end\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\">\
                 <title>{name} ends at {at}{why}</title></line>",
                y - 9.0,
                y + 9.0
            ));
        }
    }

    /// When the leases end of holders that lose their locks.
    fn lease_ends(&mut self) {
        for (lane, at) in &self.picture.lease_ends {
            let (x, y) = (self.axis.x(*at), self.y(*lane));
            let (name, _) = &self.picture.lanes[*lane];
            let at = self.picture.measure.tell(*at);
            let sign = lease_end((x, y));
            self.put(format_args!(
                "<g><title>the lease of {name} ends at {at}, and its lock is lost</title>{sign}</g>"
            ));
            let half = width("lease ends") / 2.0;
            let places = [
                (x + half + 6.0, y - 18.0),
                (x - half - 6.0, y - 18.0),
                (x, y + 22.0),
            ];
            if let Some(place) = self.page.place("lease ends", places, None) {
                self.word("word bad", place, "lease ends");
            }
        }
    }

    /// The names of messages, bars and timestamps, where there is room.
    fn words(&mut self) {
        if !self.is_named {
            return;
        }
        for bar in &self.picture.bars {
            let area = self.area(bar);
            let lock = bar.lock.as_deref().filter(|_| self.picture.has_locks);
            let word = escape(lock.unwrap_or("inside"));
            let fits = |word: &String| area.right - area.left >= width(word) + 4.0;
            let fence = bar.fence.map(|fence| format!("{word}, fence {fence}"));
            let with_pid = |pid| format!("{}, process {pid}", fence.as_ref().unwrap_or(&word));
            let long = bar.pid.map(with_pid).into_iter().chain(fence.clone());
            let Some(word) = &long.chain([word.clone()]).find(fits) else {
                continue;
            };
            if bar.state != State::Inside {
                continue;
            }
            let room = area.right - area.left - width(word);
            let middle = (area.top + area.bottom) / 2.0;
            let places = [0.5, 0.3, 0.7, 0.1, 0.9]
                .map(|share| (area.left + width(word) / 2.0 + room * share, middle));
            if let Some(place) = self.page.place(word, places, None) {
                self.word("in-bar", place, word);
            }
        }
        for (lane, at, stamp) in &self.picture.asks {
            let words = format!("asks with {stamp}");
            let (x, y) = (self.axis.x(*at), self.y(*lane));
            let right = x + width(&words) / 2.0;
            let places = [(right, y - 16.0), (right + 6.0, y + 18.0), (x, y - 16.0)];
            if let Some(place) = self.page.place(&words, places, None) {
                self.word("word", place, &words);
            }
        }
        for arrow in &self.picture.arrows {
            self.name(arrow);
        }
    }

    /// Writes a message's name beside its arrow, or onto it.
    fn name(&mut self, arrow: &Arrow) {
        let line = self.line(arrow);
        let ((x1, y1), (x2, y2)) = line;
        let words = caption(arrow);
        let half = width(&words) / 2.0;
        let along = [0.3, 0.4, 0.22, 0.5, 0.6, 0.7, 0.78].into_iter();
        let places = along.flat_map(|share| {
            let (x, y) = (x1 + (x2 - x1) * share, y1 + (y2 - y1) * share);
            [(x + half + 5.0, y), (x - half - 5.0, y), (x, y)]
        });
        let room = self.left + half - 4.0..self.width - half;
        let inside = places.filter(|(x, _)| room.contains(x));
        let places: Vec<_> = inside.collect();
        if let Some(place) = self.page.place(&words, places, Some(line)) {
            self.put(format_args!("<g class=\"k{}\">", colour(arrow.kind)));
            self.word("word", place, &words);
            self.put(format_args!("</g>"));
        }
    }

    fn word(&mut self, class: &str, (x, y): (f64, f64), words: &str) {
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{words}</text>",
            y + 4.0
        ));
    }

    /// The axis below; returns where it ends.
    fn marks(&mut self) -> f64 {
        let y = self.bottom() + 14.0;
        let (left, end) = (self.left, self.axis.end);
        self.put(format_args!(
            "{}<text class=\"faint\" x=\"16\" y=\"{:.1}\">{}</text>",
            line("axis", ((left, y), (end, y))),
            y + 16.0,
            self.picture.measure.name()
        ));
        let longest = self.picture.measure.mark(self.picture.length as u64);
        for (x, number) in self.axis.marks((width(&longest) + 8.0).max(36.0)) {
            let number = self.picture.measure.mark(number);
            self.put(line("axis", ((x, y), (x, y + 4.0))) + &note((x, y + 17.0), &number));
        }
        for (x, length) in self.axis.gaps.clone() {
            let length = self.picture.measure.tell_roughly(length);
            self.put(format_args!(
                "<rect class=\"ground\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"4\"/>{}",
                x + 5.0,
                y - 2.0,
                GAP - 10.0,
                note((x + GAP / 2.0, y + 30.0), &length)
            ));
        }
        y + 32.0
    }

    fn put(&mut self, element: impl Display) {
        let _ = writeln!(self.text, "{element}");
    }
}

/// What a message is called.
fn caption(arrow: &Arrow) -> String {
    match arrow.stamp {
        Some(stamp) => format!("{} {stamp}", arrow.kind),
        None => arrow.kind.to_owned(),
    }
}
