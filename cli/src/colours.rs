//! Colours for what is printed once to a person's terminal. Nothing is told by colours alone, and there are
//! only those of the terminal's own palette.

use std::io::{self, IsTerminal};

use distlock_agent::runtime::environment::variable;
use ratatui::backend::{Backend, TermionBackend};
use ratatui::text::Span;

/// How much a terminal has of what sets words off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Styles {
    /// No styles: standard output is no terminal, or one that has none.
    Plain,
    /// Boldness and reversal.
    #[default]
    Mono,
    /// Colours, too.
    Colours,
}

impl Styles {
    /// Those of the terminal that TERM names, as <https://no-color.org> has it: an empty NO_COLOR is as good as
    /// none.
    pub(crate) fn of_terminal() -> Self {
        let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
        let wants_colours = variable("NO_COLOR").is_none_or(|value| value.is_empty());
        match (is_dumb, wants_colours) {
            (true, _) => Self::Plain,
            (false, false) => Self::Mono,
            (false, true) => Self::Colours,
        }
    }

    /// The same if standard output is a terminal.
    pub(crate) fn of_output() -> Self {
        if io::stdout().is_terminal() {
            Self::of_terminal()
        } else {
            Self::Plain
        }
    }

    /// A line in this tone.
    pub(crate) fn line(self, tone: Tone, line: &str) -> String {
        let code = match (self, tone) {
            (Self::Plain, _) | (_, Tone::Plain) => return line.to_owned(),
            (_, Tone::Head) | (Self::Mono, Tone::Bad) => "1",
            (Self::Mono, Tone::Waiting) => return line.to_owned(),
            (Self::Colours, Tone::Waiting) => "35",
            (Self::Colours, Tone::Bad) => "1;31",
        };
        format!("\x1b[{code}m{line}\x1b[m")
    }

    /// Sentences of which those are bad that begin with a word in capital letters.
    pub(crate) fn sentences(self, text: &str) -> String {
        let lines = text.lines().map(|line| {
            let first = line.split_whitespace().next().unwrap_or_default();
            let is_loud = first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_uppercase());
            let tone = if is_loud { Tone::Bad } else { Tone::Plain };
            self.line(tone, line) + "\n"
        });
        lines.collect()
    }
}

/// How many columns a line may have if standard output is a terminal: as many as COLUMNS says, else as the
/// terminal has. `None` if standard output is a file or a pipe, where a line may have any length.
pub(crate) fn columns_of_output() -> Option<u16> {
    io::stdout().is_terminal().then(columns).flatten()
}

/// How many columns COLUMNS says, else the terminal has, whatever standard output is.
pub(crate) fn columns() -> Option<u16> {
    let told = variable("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    let of_terminal = || Some(TermionBackend::new(io::stdout()).size().ok()?.width);
    let is_some = |&columns: &u16| columns > 0;
    told.filter(is_some)
        .or_else(|| of_terminal().filter(is_some))
}

/// How many columns a text takes.
pub(crate) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Plain,
    /// The names of columns.
    Head,
    /// Of one that waits, or is on its way.
    Waiting,
    /// To be looked at.
    Bad,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_stands_out_where_the_terminal_can() {
        let text = "Group shop\nNO QUORUM: members 1, 2 vote.\nA word\n";
        assert_eq!(Styles::Plain.sentences(text), text);
        let loud = "Group shop\n\x1b[1;31mNO QUORUM: members 1, 2 vote.\x1b[m\nA word\n";
        assert_eq!(Styles::Colours.sentences(text), loud);
        assert_eq!(Styles::Mono.line(Tone::Waiting, "x"), "x");
        assert_eq!(Styles::Mono.line(Tone::Bad, "x"), "\x1b[1mx\x1b[m");
        assert_eq!(Styles::Colours.line(Tone::Plain, "x"), "x");
    }
}
