//! What is above the list: the group, the quorum, the lease, rates, members.

use distlock::status::MemberState;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::words::{cut_left, padded, rate, set_time, wrapped};
use super::{Screenful, Styles, cut, duration};
use crate::colours::width_of;
use crate::status::state;
use crate::top::model::{Lease, Member, Model};

/// So many lines at most are for one note that is an alarm, and for members.
const MAX_ALARM: usize = 4;
const MAX_MEMBERS: usize = 7;
/// Narrower than this, the title has no end.
const NARROW: usize = 40;

/// What follows the title.
pub(super) fn lines(shown: &Screenful<'_>, width: usize) -> Vec<Line<'static>> {
    let (model, styles) = (shown.model, shown.styles);
    let mut lines = Vec::new();
    if let Some(stale) = shown.stale {
        let text = format!(
            "NO NEWS for {}: {}. Below is what the agent told last; it is asked again and again.",
            duration(stale.age),
            stale.why.trim_end_matches('.'),
        );
        let text = wrapped(&text, width, 3).into_iter();
        lines.extend(text.map(|line| Line::styled(line, styles.alarm())));
    }
    for (at, note) in model.notes.iter().enumerate() {
        if is_alarm(note) || at == 0 && !model.has_quorum {
            let text = wrapped(note, width, MAX_ALARM).into_iter();
            lines.extend(text.map(|line| Line::styled(line, styles.bad())));
        } else {
            lines.push(Line::raw(cut(note, width)));
        }
    }
    if let Some(lease) = &model.lease {
        let text = lease_text(lease, model);
        lines.push(labelled("Lease", &text));
    }
    lines.extend(rates(model));
    lines.extend(members(&model.members, styles, width));
    lines
}

/// What endangers the group begins with a word in capitals.
fn is_alarm(note: &str) -> bool {
    let word = note.split([' ', ':']).next().unwrap_or_default();
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase())
}

/// The first line. Its end says what part of the list is seen, and how often the agent is asked.
pub(super) fn title(shown: &Screenful<'_>, end: &str, width: usize) -> Line<'static> {
    let styles = shown.styles;
    let (state, style) = match (shown.controls.is_paused, shown.stale) {
        (true, _) => ("PAUSED".to_owned(), styles.reversed()),
        (false, Some(stale)) => (format!("OLD: {}", duration(stale.age)), styles.alarm()),
        (false, None) => (String::new(), Style::new()),
    };
    let end = if width < NARROW { "" } else { end };
    let gap = if state.is_empty() { "" } else { " " };
    let room = width.saturating_sub(width_of(&state) + width_of(end) + 1 + gap.len());
    Line::from(vec![
        Span::styled(padded(&shown.model.title, room), styles.strong()),
        Span::raw(gap),
        Span::styled(state, style),
        Span::raw(format!(" {end}")),
    ])
}

fn labelled(label: &str, text: &str) -> Line<'static> {
    Line::raw(format!("{label:<8}{text}"))
}

fn lease_text(lease: &Lease, model: &Model) -> String {
    let mut text = set_time(lease.length);
    if let Some(remaining) = lease.remaining {
        text += &format!(", {} left", duration(remaining));
    }
    if let Some(margin) = lease.least_margin {
        text += &format!(", at renewals never less than {}", duration(margin));
    }
    if let Some(rates) = &model.rates {
        text += &format!("; lost {}/s, {} in all", rate(rates.losses), model.losses);
    }
    text
}

fn rates(model: &Model) -> Vec<Line<'static>> {
    let clients = match model.clients {
        None => String::new(),
        Some(1) => "; 1 program is connected".to_owned(),
        Some(clients) => format!("; {clients} programs are connected"),
    };
    let Some(rates) = &model.rates else {
        return Vec::new();
    };
    let unlisted = match model.unlisted.known() {
        Some(unlisted) => format!(", {}/s of locks not listed", rate(unlisted)),
        None => String::new(),
    };
    let grants = format!(
        "{}/s here, {}/s by loan{unlisted}; refused {}/s",
        rate(rates.grants),
        rate(rates.by_loan),
        rate(rates.refusals)
    );
    let network = format!(
        "{}/s in, {}/s out, {}/s dropped{clients}",
        rate(rates.datagrams_received),
        rate(rates.datagrams_sent),
        rate(rates.datagrams_dropped)
    );
    vec![labelled("Grants", &grants), labelled("Network", &network)]
}

/// A line each, if those are few; else of those that are not alive, and how many more there are.
fn members(members: &[Member], styles: Styles, width: usize) -> Vec<Line<'static>> {
    let is_alive = |member: &&Member| member.state == MemberState::Alive;
    let mut shown: Vec<_> = members.iter().collect();
    if shown.len() > MAX_MEMBERS {
        // The sort is stable.
        shown.sort_by_key(is_alive);
        shown.truncate(MAX_MEMBERS - 1);
        shown.sort_by_key(|member| member.id);
    }
    let id = shown.iter().map(|it| it.id.to_string().len());
    let id = id.max().unwrap_or(1);
    let address = shown.iter().map(|it| width_of(&it.address));
    let address = address.max().unwrap_or(0).min(width * 2 / 5);
    let line = |member: &Member| {
        let votes = if member.votes { "votes" } else { "-" };
        let style = match member.state {
            MemberState::Alive => styles.good(),
            MemberState::Joining | MemberState::Left => styles.waiting(),
            _ => styles.bad(),
        };
        let mut words = Vec::new();
        if member.is_asked {
            words.push("is asked here".to_owned());
        }
        if !member.detail.is_empty() {
            words.push(member.detail.clone());
        }
        let address = padded(&cut_left(&member.address, address), address);
        Line::from(vec![
            Span::raw("Member  "),
            Span::raw(format!("{:>id$}  {address}  ", member.id)),
            Span::styled(format!("{:<8}", state(member.state)), style),
            Span::raw(format!("{votes:<7}{}", words.join("; "))),
        ])
    };
    let mut lines: Vec<_> = shown.iter().map(|member| line(member)).collect();
    let more = members.len() - shown.len();
    if more > 0 {
        let are_alive = members.iter().filter(is_alive).count();
        let text = format!(
            "{more} more; {are_alive} of all {} are alive",
            members.len()
        );
        lines.push(labelled("Member", &text));
    }
    lines
}
