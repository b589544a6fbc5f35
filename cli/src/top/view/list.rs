//! The locks, each with its holders and waiters.

use ratatui::text::{Line, Span};

use super::words::{padded, rate};
use super::{Styles, cut, duration};
use crate::colours::width_of;
use crate::top::keys::Controls;
use crate::top::model::{Lock, Model, Order, Process, Rate};

/// So many waiters of a lock have lines if not all are asked for.
const FIRST_WAITERS: usize = 3;
/// What the columns behind a lock's name take, as a rule.
const NUMBERS: usize = 48;
/// Where there is room for fences, which are long.
const WIDE: usize = 110;

/// How wide the columns are, which depends on what is in them.
struct Columns {
    state: usize,
    member: usize,
    host: usize,
    pid: usize,
    age: usize,
    fence: usize,
    width: usize,
}

pub(super) fn heading(model: &Model, controls: &Controls, width: usize) -> String {
    let marked = |order, text: &str| {
        if controls.order == order {
            format!("{text}*")
        } else {
            text.to_owned()
        }
    };
    format!(
        "{}{:>9}{:>10}{:>9}{:>8}  ALGORITHM",
        padded(&marked(Order::Name, "LOCK"), name_width(model, width)),
        marked(Order::Heat, "HEAT"),
        "GRANTS/S",
        marked(Order::Waiters, "WAITERS"),
        marked(Order::Age, "AGE"),
    )
}

fn name_width(model: &Model, width: usize) -> usize {
    let names = model.locks.iter().map(|lock| width_of(&lock.name));
    let room = width.saturating_sub(NUMBERS).max(8);
    names.max().unwrap_or(0).clamp(8, room)
}

pub(super) fn lines(
    model: &Model,
    controls: &Controls,
    styles: Styles,
    width: usize,
) -> Vec<Line<'static>> {
    let locks = model.sorted(controls.order, controls.is_reversed, &controls.filter);
    if locks.is_empty() {
        let text = match (controls.filter.is_empty(), model.has_quorum) {
            (false, _) => "No lock that is held or waited for has such a name.",
            (true, true) => "No lock is held or waited for.",
            (true, false) => "No member that is heard holds a lock or waits for one.",
        };
        return vec![Line::raw(text)];
    }
    let name = name_width(model, width);
    let columns = Columns::new(&locks, controls, width);
    let mut lines = Vec::new();
    for lock in locks {
        lines.push(lock_line(lock, name, styles));
        if lock.is_quarantined {
            let text = "  quarantined until the lease of a lost member is over";
            lines.push(Line::styled(text, styles.bad()));
        }
        for holder in &lock.holders {
            let fence = holder.fence.map(|fence| fence.to_string());
            let behind = (fence.unwrap_or_default(), holder.command.as_str());
            let state = Span::styled(padded("holds", columns.state), styles.good());
            lines.push(columns.line(state, &holder.by, behind));
        }
        for (place, waiter) in lock.waiters.iter().enumerate().take(seen(lock, controls)) {
            let state = padded(&waits(place), columns.state);
            let state = Span::styled(state, styles.waiting());
            lines.push(columns.line(state, &waiter.by, (String::new(), "")));
        }
        let more = lock.waiters.len() - seen(lock, controls);
        if more > 0 {
            let text = format!("  and {more} more wait");
            lines.push(Line::styled(text, styles.waiting()));
        }
    }
    lines
}

fn waits(place: usize) -> String {
    format!("waits {}", place + 1)
}

/// How many waiters have a line. One alone has it, as "and 1 more" takes a line, too.
fn seen(lock: &Lock, controls: &Controls) -> usize {
    let all = lock.waiters.len();
    match controls.shows_all || all <= FIRST_WAITERS + 1 {
        true => all,
        false => FIRST_WAITERS,
    }
}

fn lock_line(lock: &Lock, name: usize, styles: Styles) -> Line<'static> {
    let grants = match lock.rate {
        Rate::Unknown => "-".to_owned(),
        Rate::Counted(its) => rate(its),
        Rate::ByFences(its) => format!("~{}", rate(its)),
    };
    let algorithm = match (lock.algorithm.as_str(), lock.holders.as_slice()) {
        ("", []) => "free when looked at",
        (algorithm, _) => algorithm,
    };
    let numbers = format!(
        "{:>9}{grants:>10}{:>9}{:>8}  {algorithm}",
        rate(lock.heat()),
        lock.waiters.len(),
        lock.age().map_or_else(|| "-".to_owned(), duration),
    );
    Line::from(vec![
        Span::styled(padded(&lock.name, name), styles.strong()),
        Span::raw(numbers),
    ])
}

impl Columns {
    fn new(locks: &[&Lock], controls: &Controls, width: usize) -> Self {
        let mut columns = Self {
            state: "holds".len(),
            member: 0,
            host: 0,
            pid: 0,
            age: 0,
            fence: 0,
            width,
        };
        for lock in locks {
            let seen = seen(lock, controls);
            if seen > 0 {
                columns.state = columns.state.max(waits(seen - 1).len());
            }
            for holder in &lock.holders {
                columns.widen(&holder.by);
                if let Some(fence) = holder.fence.filter(|_| width >= WIDE) {
                    columns.fence = columns.fence.max("fence ".len() + fence.to_string().len());
                }
            }
            for waiter in lock.waiters.iter().take(seen) {
                columns.widen(&waiter.by);
            }
        }
        columns.host = columns.host.min((width / 6).max(8));
        columns
    }

    fn widen(&mut self, by: &Process) {
        self.member = self.member.max(member(by).len());
        self.host = self.host.max(width_of(&by.host));
        self.pid = self.pid.max(pid(by).len());
        self.age = self.age.max(age(by).len());
    }

    fn line(
        &self,
        state: Span<'static>,
        by: &Process,
        (fence, command): (String, &str),
    ) -> Line<'static> {
        let mut text = String::new();
        let fence = match fence.as_str() {
            "" => String::new(),
            fence => format!("fence {fence}"),
        };
        for (cell, width) in [
            (member(by), self.member),
            (by.host.clone(), self.host),
            (pid(by), self.pid),
        ] {
            if width > 0 {
                text += &format!("  {}", padded(&cell, width));
            }
        }
        text += &format!("  {:>1$}", age(by), self.age);
        if self.fence > 0 {
            text += &format!("  {}", padded(&fence, self.fence));
        }
        let room = self.width.saturating_sub(4 + self.state + width_of(&text));
        text += &format!("  {}", cut(command, room));
        Line::from(vec![Span::raw("  "), state, Span::raw(text)])
    }
}

fn member(by: &Process) -> String {
    match by.member {
        0 => String::new(),
        id => format!("member {id}"),
    }
}

fn pid(by: &Process) -> String {
    format!("pid {}", by.pid)
}

fn age(by: &Process) -> String {
    by.age.map_or_else(|| "-".to_owned(), duration)
}
