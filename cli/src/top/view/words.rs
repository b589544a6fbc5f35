//! Text that fits into columns; times and rates in few characters.

use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::Span;

use crate::colours::width_of;

/// Its beginning, with an ellipsis where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let span = Span::raw(text);
    let mut out = String::new();
    let mut used = 1;
    for grapheme in span.styled_graphemes(Style::new()) {
        used += width_of(grapheme.symbol);
        if used > width {
            break;
        }
        out.push_str(grapheme.symbol);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Its end: of a path that tells more.
pub(super) fn cut_left(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let span = Span::raw(text);
    let graphemes: Vec<_> = span.styled_graphemes(Style::new()).collect();
    let mut used = 1;
    let kept = graphemes.iter().rev().take_while(|it| {
        used += width_of(it.symbol);
        used <= width
    });
    let kept = kept.count();
    let tail = graphemes[graphemes.len() - kept..].iter();
    let tail: String = tail.map(|it| it.symbol).collect();
    if width > 0 {
        format!("…{tail}")
    } else {
        tail
    }
}

/// Cut or filled up, so that it takes so many columns.
pub(super) fn padded(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    let missing = width.saturating_sub(width_of(&out));
    out.extend(std::iter::repeat_n(' ', missing));
    out
}

/// Lines of whole words, at most `max` of them; where that is not all, the last one ends with an ellipsis.
pub(super) fn wrapped(text: &str, width: usize, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line) + 1 + width_of(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
        if lines.len() > max {
            lines.truncate(max);
            if let Some(last) = lines.last_mut() {
                *last = cut(&format!("{last} …"), width);
            }
            break;
        }
    }
    lines
}

/// As `20 ms`, `4.2 s`, `42 s`, `12 min`, `3 h` or `5 d`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_millis() < 100 => format!("{} ms", time.as_millis()),
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min", seconds / 60),
        6_000..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A time that somebody set, as it was set.
pub(super) fn set_time(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// As `0`, `0.4`, `42`, `1.2k` or `3.4M`.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        ..999.5 => format!("{rate:.0}"),
        ..999_500.0 => format!("{:.1}k", rate / 1e3),
        _ => format!("{:.1}M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_to_its_columns() {
        assert_eq!(cut("printer", 7), "printer");
        assert_eq!(cut("printer", 4), "pri…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("x", 0), "");
        assert_eq!(cut_left("/run/x/1.sock", 7), "…1.sock");
        assert_eq!(cut_left("日本語", 3), "…語");
        assert_eq!(padded("日", 4), "日  ");
        assert_eq!(padded("printer", 3), "pr…");
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrapped("a bc def", 4, 3), ["a bc", "def"]);
        assert_eq!(wrapped("a bc def", 4, 1), ["a b…"]);
        assert_eq!(wrapped("one two three", 20, 3), ["one two three"]);
        assert_eq!(wrapped("abcdefgh i", 3, 3), ["abcdefgh", "i"]);
        assert!(wrapped("", 3, 3).is_empty());
    }

    #[test]
    fn times_and_rates_are_short() {
        let millis = Duration::from_millis;
        let times = [20, 400, 9_949, 42_000, 180_000, 7_200_000, 500_000_000];
        let texts = times.map(|time| duration(millis(time)));
        assert_eq!(
            texts,
            ["20 ms", "0.4 s", "9.9 s", "42 s", "3 min", "2 h", "5 d"]
        );
        let rates = [0.0, 0.04, 9.94, 9.96, 999.0, 1_234.0, 3_400_000.0].map(rate);
        assert_eq!(rates, ["0", "0.0", "9.9", "10", "999", "1.2k", "3.4M"]);
        assert_eq!(set_time(millis(5_000)), "5 s");
        assert_eq!(set_time(millis(100)), "0.1 s");
    }
}
