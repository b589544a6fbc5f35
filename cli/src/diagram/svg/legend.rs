//! What the signs in a diagram mean.

use super::elements::{STAY, WAIT, colour, cross, lease_end};
use crate::diagram::picture::{Fate, Picture, State};

/// The signs that the picture has, each 26 pixels wide, and what they mean.
pub(super) fn signs(picture: &Picture, kinds: &[&'static str]) -> Vec<(String, String)> {
    let has = |state| picture.bars.iter().any(|bar| bar.state == state);
    let mut items: Vec<(String, String)> = Vec::new();
    let mut add = |is_there: bool, sign: &str, word: &str| {
        if is_there {
            items.push((sign.to_owned(), word.to_owned()));
        }
    };
    let bar = |class, half: f64| {
        format!(
            "<rect class=\"{class}\" y=\"-{half}\" width=\"26\" height=\"{}\"/>",
            half * 2.0
        )
    };
    add(has(State::Waiting), &bar("wait", WAIT), "waits");
    add(
        has(State::Inside),
        &bar("stay", STAY),
        "in the critical section",
    );
    for kind in kinds {
        let sign = format!(
            "<g class=\"message k{}\"><line x2=\"20\"/>\
             <path class=\"tip\" d=\"M26 0l-9 -3.5v7z\"/></g>",
            colour(kind)
        );
        add(true, &sign, kind);
    }
    let again = "<g class=\"message again k0\"><line x2=\"26\"/></g>";
    let is_again = picture.arrows.iter().any(|arrow| arrow.again);
    add(is_again, again, "sent once more by the link");
    let lost = picture.arrows.iter().any(|arrow| arrow.fate == Fate::Lost);
    add(lost, &cross("lost", (13.0, 0.0), 4.0), "never arrives");
    add(
        !picture.crashes.is_empty(),
        &cross("crash", (13.0, 0.0), 7.0),
        "crash",
    );
    let end = "<line class=\"end\" x1=\"13\" y1=\"-8\" x2=\"13\" y2=\"8\"/>";
    add(!picture.ends.is_empty(), end, "ends");
    add(
        !picture.lease_ends.is_empty(),
        &lease_end((13.0, 0.0)),
        "the holder's lease ends",
    );
    let view = "<path class=\"view\" d=\"M13 -6l5 6l-5 6l-5 -6z\"/>";
    add(!picture.views.is_empty(), view, "installs a new view");
    items
}
