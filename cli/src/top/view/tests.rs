use std::collections::BTreeMap;

use distlock::status::{QuorumStatus, Status};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::keys::Key;
use crate::top::model::Look;
use crate::top::model::tests::{granted, lock, look};

const SECOND: Duration = Duration::from_secs(1);

/// A group with a lock that is listed, and two that are not.
fn model() -> Model {
    let (mut old, mut new) = (look(10), look(12));
    old.metrics
        .as_mut()
        .expect("an agent's")
        .locks
        .insert("printer".to_owned(), granted(100, 50));
    new.metrics
        .as_mut()
        .expect("an agent's")
        .locks
        .insert("printer".to_owned(), granted(124, 60));
    old.status.locks = vec![lock("stock", (5 << 32) | 4, 2, 0)];
    new.status.locks = vec![
        lock("printer", (5 << 32) | 7, 2, 6),
        lock("stock", (5 << 32) | 6, 2, 0),
        lock("日本語", (5 << 32) | 9, 2, 1),
    ];
    new.status.locks[2].quarantined = true;
    Model::new(Some(&old), &new)
}

fn screen(
    model: &Model,
    controls: &mut Controls,
    stale: Option<&Stale>,
    size: (u16, u16),
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("memory");
    let shown = Screenful {
        model,
        controls: &controls.clone(),
        interval: SECOND,
        stale,
        styles: Styles::Colours,
    };
    let mut fits = (0, 0);
    let drawn = terminal.draw(|frame| fits = draw(frame, &shown));
    drawn.expect("memory");
    controls.fit(fits.0, fits.1);
    terminal
}

fn lines_of(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content().chunks(width).map(row).collect()
}

#[test]
fn eighty_columns_have_room_for_what_matters() {
    let model = model();
    let lines = lines_of(&screen(&model, &mut Controls::default(), None, (80, 24)));
    let expected = "\
Group shop, member 1, epoch 5                                          every 1 s
Quorum: members 1, 2 vote.
Lease   5 s, 4.1 s left; lost 0/s, 0 in all
Grants  12/s here, 5.0/s by loan, 0/s of locks not listed; refused 0/s
Network 0/s in, 0/s out, 0/s dropped; 2 programs are connected
Member  1  udp:10.0.0.1:7400  alive   votes  is asked here
Member  2  udp:10.0.0.2:7400  alive   votes
Member  3  udp:10.0.0.3:7400  suspect -
LOCK        HEAT*  GRANTS/S  WAITERS     AGE  ALGORITHM
printer        18        12        6    10 s  manager
  holds    member 2  b  pid 47  10 s  lp -d x
  waits 1  member 3  c  pid 1   10 s
  waits 2  member 3  c  pid 2   10 s
  waits 3  member 3  c  pid 3   10 s
  and 3 more wait
stock         1.0      ~1.0        0    10 s  manager
  holds    member 2  b  pid 47  10 s  lp -d x";
    assert_eq!(lines[..17].join("\n"), expected, "{lines:#?}");
    assert!(lines[18].starts_with("  quarantined until"), "{lines:#?}");
    let keys =
        "q quit  ? help  s sort: heat  / filter  r reverse  jk scroll  p pause  w all waiters";
    assert!(
        keys.starts_with(&lines[23]) && lines[23].len() > 60,
        "{lines:#?}"
    );
}

#[test]
fn wide_terminals_show_fences_and_all_keys() {
    let model = model();
    let mut controls = Controls::default();
    controls.press(Key::Char('w'));
    let lines = lines_of(&screen(&model, &mut controls, None, (200, 50)));
    let fence = format!("fence {}", (5_u64 << 32) | 7);
    assert!(lines.iter().any(|line| line.contains(&fence)), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("  waits 6")));
    assert!(lines[49].ends_with("w fewer waiters"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small_and_nothing_panics() {
    let model = model();
    let stale = Stale {
        age: SECOND,
        why: "it does not answer".to_owned(),
    };
    for size in [
        (20, 5),
        (1, 1),
        (2, 2),
        (80, 1),
        (1, 24),
        (0, 0),
        (7, 3),
        (300, 3),
    ] {
        for key in ['j', '?', '/', 'w'] {
            let mut controls = Controls::default();
            controls.press(Key::Char(key));
            controls.offset = 1_000;
            screen(&model, &mut controls, Some(&stale), size);
            screen(&Model::new(None, &look(1)), &mut controls, None, size);
        }
    }
    let lines = lines_of(&screen(&model, &mut Controls::default(), None, (20, 5)));
    assert!(lines[0].starts_with("Group shop, member"), "{lines:#?}");
    assert!(lines[1].starts_with("LOCK"), "{lines:#?}");
    assert!(lines[4].starts_with("q quit"), "{lines:#?}");
}

#[test]
fn the_list_scrolls_to_its_end_and_says_where_it_is() {
    let model = model();
    let mut controls = Controls::default();
    let first = lines_of(&screen(&model, &mut controls, None, (80, 15)));
    assert!(
        first[0].ends_with("lines 1-5 of 12, every 1 s"),
        "{first:#?}"
    );
    controls.press(Key::End);
    let last = lines_of(&screen(&model, &mut controls, None, (80, 15)));
    assert!(
        last[0].ends_with("lines 8-12 of 12, every 1 s"),
        "{last:#?}"
    );
    assert!(last[13].starts_with("  waits 1"), "{last:#?}");
}

#[test]
fn a_filter_and_the_help_are_shown() {
    let model = model();
    let mut controls = Controls::default();
    for key in "/sto".chars() {
        controls.press(Key::Char(key));
    }
    let typed = lines_of(&screen(&model, &mut controls, None, (80, 24)));
    assert_eq!(typed[23], "Filter: sto_  Enter keeps, Esc clears");
    assert!(!typed.iter().any(|line| line.starts_with("printer")));
    controls.press(Key::Enter);
    let kept = lines_of(&screen(&model, &mut controls, None, (80, 24)));
    assert!(kept[23].contains("/ filter: sto"), "{kept:#?}");
    for key in "/x".chars() {
        controls.press(Key::Char(key));
    }
    let none = lines_of(&screen(&model, &mut controls, None, (80, 24)));
    assert!(none.iter().any(|line| line.contains("has such a name")));
    controls.press(Key::Escape);
    controls.press(Key::Char('?'));
    let help = lines_of(&screen(&model, &mut controls, None, (80, 24)));
    assert!(
        help.iter().any(|line| line.starts_with("Any key")),
        "{help:#?}"
    );
    assert!(HELP.lines().all(|line| line.len() <= 80));
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let mut now = look(12);
    let quorum = &mut now.status.quorum;
    (quorum.ok, quorum.missing) = (false, vec![2]);
    let model = Model::new(None, &now);
    let stale = Stale {
        age: Duration::from_secs(42),
        why: "the agent cannot be used any more: it ended; see that it runs".to_owned(),
    };
    let lines = lines_of(&screen(
        &model,
        &mut Controls::default(),
        Some(&stale),
        (80, 24),
    ));
    let text = lines.join(" ");
    assert!(lines[0].ends_with("OLD: 42 s every 1 s"), "{lines:#?}");
    assert!(
        lines[1].starts_with("NO NEWS for 42 s: the agent cannot"),
        "{lines:#?}"
    );
    assert!(
        text.contains("NO QUORUM: members 1, 2 vote; member 2 is silent."),
        "{lines:#?}"
    );
    assert!(
        text.contains("see that they run and can be reached"),
        "{lines:#?}"
    );
    let mut paused = Controls::default();
    paused.press(Key::Char('p'));
    let paused = lines_of(&screen(&model, &mut paused, None, (80, 24)));
    assert!(paused[0].ends_with("PAUSED every 1 s"), "{paused:#?}");
}

#[test]
fn only_the_terminals_own_colours_are_used_and_none_if_not_wanted() {
    let model = model();
    let terminal = screen(&model, &mut Controls::default(), None, (80, 24));
    let cells = terminal.backend().buffer().content().iter();
    for cell in cells {
        let colours = [Color::Reset, Color::Red, Color::Green, Color::Magenta];
        assert!(colours.contains(&cell.fg), "{cell:?}");
        assert_eq!(cell.bg, Color::Reset);
    }
    for style in [Styles::Mono, Styles::Plain] {
        assert_eq!(style.alarm().fg, None);
        assert_eq!(style.good(), Style::new());
    }
    assert_eq!(Styles::Plain.alarm(), Style::new());
}

#[test]
fn plain_text_has_all_lines_and_no_more_columns() {
    let model = model();
    let printed = text(&model, SECOND, 80);
    assert!(printed.contains("\n  waits 6  member 3"), "{printed}");
    assert!(printed.contains("\n日本語 "), "{printed}");
    assert!(printed.ends_with('\n') && !printed.contains('\u{1b}'));
    for width in [80, 30, 1] {
        let printed = text(&model, SECOND, width);
        let width = usize::from(width);
        assert!(
            printed.lines().all(|line| width_of(line) <= width),
            "{printed}"
        );
        assert!(printed.lines().all(|line| line.trim_end() == line));
    }
}

#[test]
fn the_local_group_has_neither_members_nor_rates() {
    let quorum = QuorumStatus {
        ok: true,
        ..QuorumStatus::default()
    };
    let mut local = lock("x", 3, 2, 1);
    local.holders[0].member = 0;
    local.waiters[0].member = 0;
    let look = Look {
        status: Status {
            group: "local".to_owned(),
            quorum,
            locks: vec![local],
            ..Status::default()
        },
        metrics: None,
        ..look(12)
    };
    let printed = text(&Model::new(None, &look), SECOND, 80);
    let expected = "\
Group local                                                             over 1 s
LOCK        HEAT*  GRANTS/S  WAITERS     AGE  ALGORITHM
x             1.0         -        1    10 s  manager
  holds    b  pid 47  10 s  lp -d x
  waits 1  c  pid 1   10 s
";
    assert_eq!(printed, expected);
}

#[test]
fn of_many_members_those_that_are_missing_are_shown() {
    let mut look = look(12);
    let mut member = look.status.members[0].clone();
    for id in 4..=40 {
        member.id = id;
        look.status.members.push(member.clone());
    }
    let metrics = look.metrics.as_mut().expect("an agent's");
    metrics.datagrams_dropped = BTreeMap::new();
    let printed = text(&Model::new(None, &look), SECOND, 80);
    let of_members = printed.lines().filter(|line| line.starts_with("Member  "));
    assert_eq!(of_members.count(), 7, "{printed}");
    assert!(
        printed.contains(" 3  udp:10.0.0.3:7400  suspect"),
        "{printed}"
    );
    assert!(
        printed.contains("34 more; 39 of all 40 are alive"),
        "{printed}"
    );
}
