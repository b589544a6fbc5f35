//! Tables for people.

use std::iter;

use comfy_table::{Table, presets};
use distlock::status::{MemberState, Status};

use crate::colours::{Styles, Tone};
use crate::exit::clean;

/// Nothing where there are no members.
pub(super) fn members_table(status: &Status, styles: Styles) -> String {
    if status.members.is_empty() {
        return String::new();
    }
    let rows = status.members.iter().map(|member| {
        let tone = match member.state {
            MemberState::Alive | MemberState::Left => Tone::Plain,
            MemberState::Joining => Tone::Waiting,
            _ => Tone::Bad,
        };
        let cells = [
            member.id.to_string(),
            clean(&member.address),
            state(member.state).to_owned(),
            clean(&member.detail),
        ];
        (tone, cells)
    });
    table(["MEMBER", "ADDRESS", "STATE", ""], rows.collect(), styles)
}

/// The word that JSON has for it too.
pub(crate) fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Joining => "joining",
        MemberState::Suspect => "suspect",
        MemberState::Left => "left",
        MemberState::Refused => "refused",
        _ => "unknown",
    }
}

/// A table without lines: columns as wide as their widest cell, two spaces apart.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: Vec<(Tone, [String; N])>,
    styles: Styles,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head);
    let (tones, rows): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // A row is a line: its cells have no line breaks, and no width is too much.
    let text = table.trim_fmt();
    let tones = [Tone::Head]
        .into_iter()
        .chain(tones)
        .chain(iter::repeat(Tone::Plain));
    let lines = text.lines().zip(tones);
    lines
        .map(|(line, tone)| styles.line(tone, line) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_shown() {
        let rows = [["é", "alive"], ["日本", "alive"], ["x", ""]];
        let rows = rows.map(|row| (Tone::Waiting, row.map(str::to_owned)));
        let shown = "ID    STATE\né     alive\n日本  alive\nx\n";
        let plain = table(["ID", "STATE"], rows.to_vec(), Styles::Plain);
        assert_eq!(plain, shown);
        let coloured = table(["ID", "STATE"], rows.to_vec(), Styles::Colours);
        assert!(coloured.starts_with("\x1b[1mID    STATE\x1b[m\n\x1b[35mé     alive\x1b[m\n"));
    }
}
