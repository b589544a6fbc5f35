//! How the model is drawn: in a terminal's frame, or as plain lines.
//!
//! Nothing is told by colours alone, and there are only those of the terminal's own palette: they suit its
//! background, whatever that is.

mod head;
mod list;
mod words;

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::keys::Controls;
use super::model::Model;
use crate::colours::{Styles, width_of};
use words::{cut, duration};

/// What is to be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screenful<'a> {
    pub(super) model: &'a Model,
    pub(super) controls: &'a Controls,
    pub(super) interval: Duration,
    /// If the agent does not tell any more: since when, and why.
    pub(super) stale: Option<&'a Stale>,
    pub(super) styles: Styles,
}

/// The agent has told nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) age: Duration,
    pub(super) why: String,
}

/// The tones that ratatui paints.
impl Styles {
    fn of(self, modifier: Modifier, colour: Option<Color>) -> Style {
        match (self, colour) {
            (Self::Plain, _) => Style::new(),
            (Self::Colours, Some(colour)) => Style::new().add_modifier(modifier).fg(colour),
            (_, _) => Style::new().add_modifier(modifier),
        }
    }

    fn strong(self) -> Style {
        self.of(Modifier::BOLD, None)
    }

    fn reversed(self) -> Style {
        self.of(Modifier::REVERSED, None)
    }

    fn good(self) -> Style {
        self.of(Modifier::empty(), Some(Color::Green))
    }

    fn waiting(self) -> Style {
        self.of(Modifier::empty(), Some(Color::Magenta))
    }

    fn bad(self) -> Style {
        self.of(Modifier::BOLD, Some(Color::Red))
    }

    fn alarm(self) -> Style {
        self.of(Modifier::BOLD.union(Modifier::REVERSED), Some(Color::Red))
    }
}

/// Draws all of it; how many lines the list has, and for how many there is room.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Screenful<'_>) -> (usize, usize) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let buffer = frame.buffer_mut();
    if shown.controls.shows_help {
        let lines = help(shown.styles);
        put(buffer, area, &lines);
        return (shown.controls.lines, shown.controls.page);
    }
    let mut head = head::lines(shown, width);
    // The title, the list's heading and the keys have a line each, and the list has some.
    let most = (height * 3 / 5).min(height.saturating_sub(5));
    head.truncate(most.saturating_sub(1));
    let list = list::lines(shown.model, shown.controls, shown.styles, width);
    let page = height.saturating_sub(head.len() + 3);
    let offset = shown.controls.offset.min(list.len().saturating_sub(page));
    let last = (offset + page).min(list.len());
    let mut end = format!("every {}", words::set_time(shown.interval));
    if last - offset < list.len() {
        let first = (offset + 1).min(last);
        end = format!("lines {first}-{last} of {}, {end}", list.len());
    }
    let mut lines = vec![head::title(shown, &end, width)];
    lines.extend(head);
    lines.push(heading(shown, width));
    lines.extend_from_slice(&list[offset..last]);
    lines.truncate(height.saturating_sub(1));
    put(buffer, area, &lines);
    if height > 1 {
        let bottom = Rect::new(area.x, area.bottom() - 1, area.width, 1);
        put(buffer, bottom, &[keys(shown, width)]);
    }
    (list.len(), page)
}

/// All of it as lines without anything that a terminal obeys.
pub(super) fn text(model: &Model, interval: Duration, width: u16) -> String {
    let controls = Controls {
        shows_all: true,
        ..Controls::default()
    };
    let shown = Screenful {
        model,
        controls: &controls,
        interval,
        stale: None,
        styles: Styles::Plain,
    };
    let columns = usize::from(width);
    let end = format!("over {}", words::set_time(interval));
    let mut lines = vec![head::title(&shown, &end, columns)];
    lines.extend(head::lines(&shown, columns));
    lines.push(heading(&shown, columns));
    lines.extend(list::lines(model, &controls, shown.styles, columns));
    lines.iter().map(|line| plain(line, width)).collect()
}

/// One line, cut as it is on the screen.
fn plain(line: &Line<'_>, width: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
    buffer.set_line(0, 0, line, width);
    let mut text = String::new();
    let mut next = 0;
    for (column, cell) in buffer.content().iter().enumerate() {
        // A wide character takes the cells behind it, too.
        if column >= next {
            text.push_str(cell.symbol());
            next = column + width_of(cell.symbol()).max(1);
        }
    }
    format!("{}\n", text.trim_end())
}

fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
        if line.style.add_modifier.contains(Modifier::REVERSED) {
            buffer.set_style(Rect::new(area.x, y, area.width, 1), line.style);
        }
    }
}

fn heading(shown: &Screenful<'_>, width: usize) -> Line<'static> {
    let columns = list::heading(shown.model, shown.controls, width);
    Line::styled(words::padded(&columns, width), shown.styles.reversed())
}

/// The keys, as many as there is room for: the first ones are the most needed.
fn keys(shown: &Screenful<'_>, width: usize) -> Line<'static> {
    let (controls, styles) = (shown.controls, shown.styles);
    if controls.is_typing {
        let hint = "  Enter keeps, Esc clears";
        let room = width.saturating_sub(9 + width_of(hint));
        let filter = words::cut_left(&controls.filter, room);
        let typed = Span::styled(format!("Filter: {filter}"), styles.strong());
        return Line::from(vec![typed, Span::raw("_"), Span::raw(hint)]);
    }
    let sort = format!("sort: {}", controls.order.word());
    let filter = match controls.filter.as_str() {
        "" => "filter".to_owned(),
        filter => format!("filter: {}", cut(filter, 20)),
    };
    let pause = if controls.is_paused { "go on" } else { "pause" };
    let waiters = if controls.shows_all {
        "fewer waiters"
    } else {
        "all waiters"
    };
    let reverse = if controls.is_reversed {
        "reversed"
    } else {
        "reverse"
    };
    let items = [
        ("q", "quit"),
        ("?", "help"),
        ("s", &sort),
        ("/", &filter),
        ("r", reverse),
        ("jk", "scroll"),
        ("p", pause),
        ("w", waiters),
    ];
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, does) in items {
        let gap = if spans.is_empty() { "" } else { "  " };
        let does = format!(" {does}");
        let more = gap.len() + key.len() + width_of(&does);
        if used + more > width {
            break;
        }
        used += more;
        spans.push(Span::raw(gap));
        spans.push(Span::styled(key, styles.strong()));
        spans.push(Span::raw(does));
    }
    Line::from(spans)
}

const HELP: &str = "\
distlock top: keys

 q Ctrl-C     quit
 j k arrows   scroll; Space and b by a page; g and G to the first and last lines
 s Tab        the next order; 1 to 4: by heat, name, waiters, age
 r            reverse the order
 /            show only locks whose names contain something: Enter keeps the
              filter, Esc clears it
 w            show all waiters of each lock, or the first three
 p            pause, and go on
 Ctrl-L       paint the screen anew

HEAT          grants per second, and waiters
GRANTS/S      to programs of this host, for locks that the configuration lists;
              with ~, in the whole group, by the fences of the lock's holders
AGE           of the holder or waiter that has been there longest

Any key leaves this help.
";

fn help(styles: Styles) -> Vec<Line<'static>> {
    let mut lines: Vec<_> = HELP.lines().map(Line::raw).collect();
    lines[0] = Line::styled(HELP.lines().next().unwrap_or_default(), styles.strong());
    lines
}

#[cfg(test)]
mod tests;
