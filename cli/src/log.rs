//! What the agent tells of what happens: a line an event, as text or as JSON.
//!
//! Whoever tells something names its event (`event = "flood"`) by a word that stays, and what else is known
//! as `epoch`, `member`, `lock` and `fence`. A line that was written already is not written again within
//! [`INTERVAL`]; the next one after that says how often it was left out.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::LogFormat;
use crate::exit::one_line;

/// For how long a line is not repeated.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many lines are remembered: those that come in turns.
const REMEMBERED: usize = 32;

/// Has all of that level and above told on standard error from now on.
pub(crate) fn start(format: LogFormat, level: Level) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        // Where standard error is closed it could only panic.
        .log_internal_errors(false)
        .event_format(Line {
            format,
            repeats: Mutex::default(),
        })
        .init();
}

struct Line {
    format: LogFormat,
    repeats: Mutex<Repeats>,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let repeats = self.repeats.lock();
        let mut repeats = repeats.unwrap_or_else(PoisonError::into_inner);
        match repeats.note(&said.message, clock::now()) {
            Some(left_out) => writer.write_str(&match self.format {
                LogFormat::Text => said.text(left_out),
                LogFormat::Json => said.json(*event.metadata().level(), left_out),
            }),
            None => Ok(()),
        }
    }
}

/// The last lines.
#[derive(Debug, Default)]
struct Repeats(VecDeque<Told>);

#[derive(Debug)]
struct Told {
    message: String,
    at: Time,
    left_out: u64,
}

impl Repeats {
    /// Whether `message` is to be told at `now`, and how often it was left out since it was told last.
    fn note(&mut self, message: &str, now: Time) -> Option<u64> {
        let index = self.0.iter().position(|told| told.message == message);
        let mut left_out = 0;
        if let Some(mut told) = index.and_then(|index| self.0.remove(index)) {
            if now.since(told.at) < INTERVAL {
                told.left_out += 1;
                self.0.push_back(told);
                return None;
            }
            left_out = told.left_out;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Told {
            message: message.to_owned(),
            at: now,
            left_out: 0,
        });
        Some(left_out)
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    /// As all that this program says.
    fn text(&self, left_out: u64) -> String {
        let mut text = format!("distlock: {}", one_line(&self.message));
        if left_out > 0 {
            let _ = write!(text, " (and {left_out} times more since it was told last)");
        }
        text.push('\n');
        text
    }

    fn json(mut self, level: Level, left_out: u64) -> String {
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| line.insert(key.to_owned(), value);
        put("ts", clock::rfc3339(SystemTime::now()).into());
        put("level", level.as_str().to_ascii_lowercase().into());
        let word = self.fields.remove("event");
        put("event", word.unwrap_or_else(|| "other".into()));
        for (key, value) in self.fields {
            put(&key, value);
        }
        if left_out > 0 {
            put("left_out", left_out.into());
        }
        put("msg", one_line(&self.message).into());
        format!("{}\n", Value::Object(line))
    }
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.fields.insert(field.name().to_owned(), text.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_once_an_interval() {
        let mut repeats = Repeats::default();
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        assert_eq!(repeats.note("a", at(1)), Some(0));
        assert_eq!(repeats.note("b", at(2)), Some(0));
        assert_eq!(
            [3, 10].map(|second| repeats.note("a", at(second))),
            [None; 2]
        );
        assert_eq!(repeats.note("a", at(11)), Some(2));
        assert_eq!(repeats.note("a", at(12)), None);
        for number in 0..REMEMBERED {
            assert_eq!(repeats.note(&number.to_string(), at(12)), Some(0));
        }
        assert_eq!(repeats.note("a", at(13)), Some(0), "it was long ago");
        assert_eq!(repeats.0.len(), REMEMBERED);
    }

    #[test]
    fn json_has_the_words_and_the_message_on_one_line() {
        let mut said = Said {
            message: "two\nlines".to_owned(),
            ..Said::default()
        };
        said.fields.insert("event".to_owned(), "flood".into());
        said.fields.insert("member".to_owned(), 2.into());
        let line = said.json(Level::WARN, 3);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&value["event"], &value["level"]),
            (&"flood".into(), &"warn".into())
        );
        assert_eq!(
            (&value["member"], &value["left_out"]),
            (&2.into(), &3.into())
        );
        assert_eq!(value["msg"], "two lines");
        assert!(value["ts"].as_str().unwrap().ends_with('Z'));
        assert!(line.ends_with("}\n"));
    }
}
