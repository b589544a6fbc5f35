//! What happened, in words, event by event.

use std::fmt::Write as _;

use super::timeline::{Moment, Timeline, What};

/// What happens, without when and where.
pub(crate) fn tell(timeline: &Timeline, moment: &Moment) -> String {
    let mut words = match &moment.what {
        What::Asked {
            stamp: Some(stamp), ..
        } => format!("asks with timestamp {stamp}"),
        What::Asked { .. } => "asks".to_owned(),
        What::Entered { fence, pid, .. } => {
            let fence = fence.map(|fence| format!(" with fence {fence}"));
            let pid = pid.map(|pid| format!(", as process {pid}"));
            format!(
                "enters{}{}",
                fence.unwrap_or_default(),
                pid.unwrap_or_default()
            )
        }
        What::Left { .. } => "leaves".to_owned(),
        What::Ended { .. } => "asks no longer".to_owned(),
        What::Lost { lease_end, .. } => {
            let end =
                lease_end.map(|end| format!(": its lease ends at {}", timeline.time_in_words(end)));
            format!("is told that the lock is lost{}", end.unwrap_or_default())
        }
        What::Sent {
            to, kind, again, ..
        } => {
            let again = if *again { " again" } else { "" };
            format!("sends {kind} to {}{again}", timeline.number(*to))
        }
        What::Received { from, kind, .. } => format!("gets {kind} from {}", timeline.number(*from)),
        What::View { members, .. } => {
            let members: Vec<_> = members.iter().map(u16::to_string).collect();
            format!("installs the view of {}", members.join(", "))
        }
        What::Suspects { lane } => format!("hears nothing from {}", timeline.number(*lane)),
        What::Excluded => "is excluded, and begins anew".to_owned(),
        What::Began => "begins".to_owned(),
        What::Closed { why: None } => "ends".to_owned(),
        What::Closed { why: Some(why) } => format!("ends: {why}"),
        What::Crashed => "crashes".to_owned(),
    };
    if let Some(lock) = &moment.lock {
        let _ = write!(words, " ({lock})");
    }
    words
}

/// All of it, a line an event.
pub(crate) fn story(timeline: &Timeline) -> String {
    let mut text = String::new();
    for moment in timeline.shown() {
        let at = timeline.time_in_words(moment.at);
        let name = timeline.lanes[moment.lane].name();
        let _ = writeln!(text, "{at:>8}  {name} {}", tell(timeline, moment));
    }
    text
}
