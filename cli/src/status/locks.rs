//! Who holds which lock, and who waits.

use std::fmt::Write as _;

use distlock::status::{LockStatus, Status};

use super::table::table;
use crate::colours::{Styles, Tone, width_of};
use crate::exit::clean;

/// A holder, a waiter, or the notice of a quarantine. A field that an entry has not is empty.
struct Entry {
    tone: Tone,
    state: &'static str,
    member: String,
    host: String,
    pid: String,
    since: String,
    fence: String,
    command: String,
}

/// A table; or, where that is wider than `columns`, a paragraph for each lock.
pub(super) fn locks(status: &Status, styles: Styles, columns: Option<u16>) -> String {
    if status.locks.is_empty() {
        return match status.quorum.ok {
            true => "No lock is held or waited for.\n".to_owned(),
            false => "No member that is heard holds a lock or waits for one.\n".to_owned(),
        };
    }
    let entries: Vec<_> = status
        .locks
        .iter()
        .flat_map(|lock| entries(lock).into_iter().map(move |entry| (lock, entry)))
        .collect();
    let fits = |columns| {
        let plain = as_table(&entries, Styles::Plain);
        plain
            .lines()
            .all(|line| width_of(line) <= usize::from(columns))
    };
    if columns.is_none_or(fits) {
        as_table(&entries, styles)
    } else {
        as_paragraphs(&entries, styles)
    }
}

fn entries(lock: &LockStatus) -> Vec<Entry> {
    let member = |id: u16| match id {
        0 => String::new(),
        id => id.to_string(),
    };
    let quarantine = lock.quarantined.then(|| Entry {
        tone: Tone::Bad,
        state: "quarantined",
        member: String::new(),
        host: String::new(),
        pid: String::new(),
        since: String::new(),
        fence: String::new(),
        command: "until the lease of a lost member is over".to_owned(),
    });
    let holders = lock.holders.iter().map(|holder| Entry {
        tone: Tone::Plain,
        state: "holds",
        member: member(holder.member),
        host: clean(&holder.host),
        pid: holder.pid.to_string(),
        since: clean(&holder.since),
        fence: holder
            .fence
            .map_or_else(String::new, |fence| fence.to_string()),
        command: clean(&holder.command),
    });
    let waiters = lock.waiters.iter().map(|waiter| Entry {
        tone: Tone::Waiting,
        state: "waits",
        member: member(waiter.member),
        host: clean(&waiter.host),
        pid: waiter.pid.to_string(),
        since: clean(&waiter.since),
        fence: String::new(),
        command: String::new(),
    });
    quarantine
        .into_iter()
        .chain(holders)
        .chain(waiters)
        .collect()
}

fn as_table(entries: &[(&LockStatus, Entry)], styles: Styles) -> String {
    let or_dash = |cell: &str| if cell.is_empty() { "-" } else { cell }.to_owned();
    let rows = entries.iter().map(|(lock, entry)| {
        let cells = [
            clean(&lock.name),
            clean(&lock.algorithm),
            entry.state.to_owned(),
            or_dash(&entry.member),
            or_dash(&entry.host),
            or_dash(&entry.pid),
            or_dash(&entry.since),
            or_dash(&entry.fence),
            entry.command.clone(),
        ];
        (entry.tone, cells)
    });
    let head = [
        "LOCK",
        "ALGORITHM",
        "",
        "MEMBER",
        "HOST",
        "PID",
        "SINCE",
        "FENCE",
        "COMMAND",
    ];
    table(head, rows.collect(), styles)
}

/// Each lock on a line, and below it each entry, whose fence and command have lines of their own. The terminal
/// wraps what is wider still.
fn as_paragraphs(entries: &[(&LockStatus, Entry)], styles: Styles) -> String {
    let mut text = String::new();
    for of_lock in entries.chunk_by(|(one, _), (other, _)| one.name == other.name) {
        let (lock, _) = of_lock[0];
        let head = format!("{} ({})", clean(&lock.name), clean(&lock.algorithm));
        text += &(styles.line(Tone::Head, &head) + "\n");
        for (_, entry) in of_lock {
            let mut lines = vec![format!("  {:<5}", entry.state)];
            if !entry.pid.is_empty() {
                let _ = write!(lines[0], "  ");
                if !entry.member.is_empty() {
                    let _ = write!(lines[0], "member {} on ", entry.member);
                }
                let (host, pid, since) = (&entry.host, &entry.pid, &entry.since);
                let _ = write!(lines[0], "{host}, process {pid}, since {since}");
            }
            if !entry.fence.is_empty() {
                lines.push(format!("         fence {}", entry.fence));
            }
            if !entry.command.is_empty() {
                lines.push(format!("         {}", entry.command));
            }
            for line in lines {
                text += &(styles.line(entry.tone, line.trim_end()) + "\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use distlock::status::{HolderStatus, WaiterStatus};

    use super::*;

    fn status() -> Status {
        let since = |second: u8| format!("2026-11-27T12:04:{second}.755Z");
        let printer = LockStatus {
            name: "printer".to_owned(),
            algorithm: "manager".to_owned(),
            quarantined: true,
            holders: vec![HolderStatus {
                member: 1,
                host: "alpha".to_owned(),
                pid: 21257,
                command: "lp report.ps".to_owned(),
                command_pid: Some(21258),
                since: since(49),
                fence: Some(258_261_042_410_231_664),
            }],
            waiters: vec![WaiterStatus {
                member: 2,
                host: "beta".to_owned(),
                pid: 812,
                since: since(50),
            }],
        };
        let locks = vec![printer];
        Status {
            locks,
            ..Status::default()
        }
    }

    #[test]
    fn a_narrow_terminal_has_paragraphs_and_no_line_is_wrapped() {
        let shown = "\
printer (manager)
  quarantined
         until the lease of a lost member is over
  holds  member 1 on alpha, process 21257, since 2026-11-27T12:04:49.755Z
         fence 258261042410231664
         lp report.ps
  waits  member 2 on beta, process 812, since 2026-11-27T12:04:50.755Z
";
        assert_eq!(locks(&status(), Styles::Plain, Some(80)), shown);
        assert!(shown.lines().all(|line| width_of(line) <= 80));
        let coloured = locks(&status(), Styles::Colours, Some(80));
        assert!(coloured.starts_with("\x1b[1mprinter (manager)\x1b[m\n"));
    }

    #[test]
    fn what_is_no_terminal_and_a_wide_one_have_a_table() {
        let table = locks(&status(), Styles::Plain, None);
        assert!(table.starts_with("LOCK     ALGORITHM"), "{table}");
        let width = table.lines().map(width_of).max().unwrap_or_default();
        let columns = u16::try_from(width).expect("it is small");
        assert_eq!(locks(&status(), Styles::Plain, Some(columns)), table);
        assert_ne!(locks(&status(), Styles::Plain, Some(columns - 1)), table);
    }
}
