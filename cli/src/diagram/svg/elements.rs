//! SVG elements that occur in several places.

use crate::diagram::labels::Line;

/// Which of the style's colours a kind of message has, in every picture: those that ask, give, put off, give
/// back and ask back have one each, and all others another.
pub(super) fn colour(kind: &str) -> usize {
    match kind {
        "GRANT" | "NEXT" | "OK" | "PASSED" | "PERM" | "REPLY" | "SHARE" | "TOKEN" | "VALUE"
        | "VOTE" => 0,
        "ASK" | "ELECTION" | "READ" | "READS" | "REQUEST" | "TRY" => 1,
        "ABSTAIN" | "BUSY" | "DEFERRED" | "FAILED" | "PARKED" | "QUEUED" | "REFUSED" => 2,
        "DROP" | "GHOST" | "PARK" | "RELEASE" | "RESIGNED" | "RETURN" | "UNPARK" | "UNPARKED"
        | "WITHDRAWN" | "YIELD" => 3,
        "INQUIRE" | "RECALL" | "ROUND" => 4,
        _ => 5,
    }
}

/// Half the height of the bar of a critical section, and of waiting.
pub(super) const STAY: f64 = 9.0;
pub(super) const WAIT: f64 = 4.0;

/// A line.
pub(super) fn line(class: &str, ((x1, y1), (x2, y2)): Line) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
}

/// A cross around a point.
pub(super) fn cross(class: &str, (x, y): (f64, f64), half: f64) -> String {
    let (left, right, top, bottom) = (x - half, x + half, y - half, y + half);
    line(class, ((left, top), (right, bottom))) + &line(class, ((left, bottom), (right, top)))
}

/// The end of a lease: a bracket that closes.
pub(super) fn lease_end((x, y): (f64, f64)) -> String {
    format!(
        "<path class=\"lease-end\" d=\"M{:.1} {:.1}h6v22h-6\"/>",
        x - 6.0,
        y - 11.0
    )
}

/// The tip of an arrow.
pub(super) fn tip(((x1, y1), (x2, y2)): Line) -> String {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = (dx * dx + dy * dy).sqrt().max(1e-9);
    let (ux, uy) = (dx / length, dy / length);
    let (bx, by) = (x2 - ux * 9.0, y2 - uy * 9.0);
    format!(
        "<path class=\"tip\" d=\"M{x2:.1} {y2:.1}L{:.1} {:.1}L{:.1} {:.1}z\"/>",
        bx - uy * 3.5,
        by + ux * 3.5,
        bx + uy * 3.5,
        by - ux * 3.5
    )
}

/// A note to the axis, below a point.
pub(super) fn note((x, y): (f64, f64), words: &str) -> String {
    format!("<text class=\"faint\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>")
}

/// Text between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
