//! The judge finds what is planted, names it with its two lines, and finds nothing else.

use super::{Breach, History, Rules};

const LONG: u64 = 1_000;

fn rules() -> Rules {
    Rules {
        permits: [("x".to_owned(), 1), ("seats".to_owned(), 2)].into(),
        long_stop_ns: LONG,
    }
}

fn judge(logs: &[(&str, &str)]) -> Vec<(Breach, String, String)> {
    let mut history = History::default();
    for (file, text) in logs {
        history.add(file, text).unwrap();
    }
    let place = |line: &super::Line| format!("{}:{}", line.file, line.number);
    let violations = history.judge(&rules()).into_iter();
    violations
        .map(|found| (found.breach, place(&found.first), place(&found.second)))
        .collect()
}

#[track_caller]
fn assert_breach(logs: &[(&str, &str)], breach: Breach, first: &str, second: &str) {
    assert_eq!(judge(logs), [(breach, first.to_owned(), second.to_owned())]);
}

#[track_caller]
fn assert_fine(logs: &[(&str, &str)]) {
    assert_eq!(judge(logs), []);
}

/// Inside from 100 to 200 with fence 7.
const A: (&str, &str) = (
    "a",
    "enter a 1 x exclusive 7 90 100\ninside a 1 150\nleave a 1 200\n",
);

#[test]
fn turns_are_fine_also_end_to_end() {
    assert_fine(&[
        A,
        ("b", "enter b 1 x exclusive 8 95 200\nleave b 1 201\n"),
        ("c", "enter c 1 x exclusive 9 95 202\nlost c 1 204\n"),
        ("ring", "write a 1 x exclusive 7 accepted\n"),
    ]);
}

#[test]
fn two_inside_are_found() {
    let b = ("b", "enter b 1 x exclusive 8 95 199\nleave b 1 300\n");
    assert_breach(&[A, b], Breach::Together, "a:1", "b:1");
    assert_breach(&[b, A], Breach::Together, "a:1", "b:1");
}

/// The one before it is outside long since, but the one before that is not.
#[test]
fn a_long_stay_is_not_forgotten_over_a_short_one() {
    let long = ("a", "enter a 1 x shared 7 90 100\nleave a 1 900\n");
    let short = ("b", "enter b 1 x shared 8 90 110\nleave b 1 120\n");
    let alone = ("c", "enter c 1 x exclusive 9 90 800\nleave c 1 850\n");
    assert_breach(&[long, short, alone], Breach::Together, "a:1", "c:1");
}

#[test]
fn who_shares_may_be_together_and_never_with_one_who_does_not() {
    let first = ("a", "enter a 1 x shared 7 90 100\nleave a 1 200\n");
    let second = ("b", "enter b 1 x shared 6 90 150\nleave b 1 250\n");
    let alone = ("c", "enter c 1 x exclusive 8 90 250\nleave c 1 300\n");
    assert_fine(&[first, second, alone]);
    let early = ("c", "enter c 1 x exclusive 8 90 249\nleave c 1 300\n");
    assert_breach(&[first, second, early], Breach::Together, "b:1", "c:1");
    let reader = ("d", "enter d 1 x shared 9 90 299\nleave d 1 400\n");
    assert_breach(&[alone, reader], Breach::Together, "c:1", "d:1");
}

#[test]
fn as_many_as_there_are_permits_and_no_more() {
    let a = ("a", "enter a 1 seats exclusive 7 90 100\nleave a 1 200\n");
    let b = ("b", "enter b 1 seats exclusive 6 90 110\nleave b 1 300\n");
    let c = ("c", "enter c 1 seats exclusive 5 90 200\nleave c 1 300\n");
    assert_fine(&[a, b, c]);
    let early = ("c", "enter c 1 seats exclusive 5 90 199\nleave c 1 300\n");
    assert_breach(&[a, b, early], Breach::Together, "a:1", "c:1");
}

#[test]
fn a_fence_that_falls_or_comes_again_is_found() {
    let b = |fence| format!("enter b 1 x exclusive {fence} 95 200\nleave b 1 300\n");
    assert_breach(&[A, ("b", &b(6))], Breach::FenceFell, "a:1", "b:1");
    assert_breach(&[A, ("b", &b(7))], Breach::FenceReused, "a:1", "b:1");
    let shared = "enter b 1 x shared 6 95 200\nleave b 1 300\n";
    assert_breach(&[A, ("b", shared)], Breach::FenceFell, "a:1", "b:1");
    let again = "enter b 1 seats exclusive 3 95 200\nleave b 1 300\n\
                 enter b 2 seats exclusive 3 300 400\nleave b 2 500\n";
    assert_breach(&[("b", again)], Breach::FenceReused, "b:1", "b:3");
}

/// Fences of several locks have nothing to do with each other.
#[test]
fn other_locks_have_fences_of_their_own() {
    let seats = "enter b 1 seats exclusive 7 95 150\nleave b 1 300\n";
    assert_fine(&[A, ("b", seats)]);
}

#[test]
fn an_old_fence_at_the_resource_is_found() {
    let b = ("b", "enter b 1 x exclusive 8 95 200\nleave b 1 300\n");
    let written = "write b 1 x exclusive 8 accepted\nwrite a 1 x exclusive 7 accepted\n";
    let logs = [A, b, ("resource", written)];
    assert_breach(&logs, Breach::OldWriteAccepted, "resource:1", "resource:2");
    let refused = written.replace("7 accepted", "7 refused");
    assert_fine(&[A, b, ("resource", &refused)]);
    // What the resource refused, it has not seen.
    let refused = "write b 1 x exclusive 8 refused\nwrite a 1 x exclusive 7 accepted\n";
    assert_fine(&[A, b, ("resource", refused)]);
}

#[test]
fn a_fence_that_the_writer_never_had_is_found() {
    let other = ("resource", "write a 1 x exclusive 9 accepted\n");
    assert_breach(&[A, other], Breach::ForeignWrite, "a:1", "resource:1");
    let nobody = ("resource", "write n 1 x exclusive 7 accepted\n");
    let itself = "resource:1";
    assert_breach(&[A, nobody], Breach::ForeignWrite, itself, itself);
}

/// Inside at 150, and nothing is known of it afterwards.
const OPEN: (&str, &str) = ("a", "enter a 1 x exclusive 7 90 100\ninside a 1 150\n");
const NEXT: (&str, &str) = ("b", "enter b 1 x exclusive 8 95 900\nleave b 1 950\n");

#[test]
fn who_never_left_is_inside_until_something_proves_the_end() {
    assert_breach(&[OPEN, NEXT], Breach::Together, "a:1", "b:1");
    assert_fine(&[OPEN, NEXT, ("nemesis", "ended a 160\n")]);
    assert_breach(
        &[OPEN, NEXT, ("nemesis", "ended c 160\n")],
        Breach::Together,
        "a:1",
        "b:1",
    );
    let lost = format!("{}lost a 1 180\n", OPEN.1);
    assert_fine(&[("a", &lost), NEXT]);
    // The torn last line of one that was killed proves nothing.
    let torn = format!("{}leave a 1 18", OPEN.1);
    assert_breach(&[("a", &torn), NEXT], Breach::Together, "a:1", "b:1");
}

#[test]
fn a_death_does_not_explain_a_stay_before_the_last() {
    let twice = format!("{}enter a 2 x exclusive 9 955 960\n", OPEN.1);
    let logs = [("a", &*twice), NEXT, ("nemesis", "ended a 970\n")];
    let places: Vec<_> = judge(&logs).into_iter().map(|found| found.2).collect();
    assert_eq!(places, ["b:1", "a:3"]);
}

#[test]
fn who_was_surely_inside_when_another_entered_is_found_though_it_died() {
    let ended = ("nemesis", "ended a 160\n");
    let early = ("b", "enter b 1 x exclusive 8 95 149\nleave b 1 300\n");
    assert_breach(&[OPEN, early, ended], Breach::Together, "a:1", "b:1");
    let after = ("b", "enter b 1 x exclusive 8 95 150\nleave b 1 300\n");
    assert_fine(&[OPEN, after, ended]);
}

#[test]
fn a_loss_ends_a_stay_when_it_was_held_last() {
    let lost = "enter a 1 x exclusive 7 90 100\ninside a 1 150\nlost a 1 400\n";
    let next = ("b", "enter b 1 x exclusive 8 95 160\nleave b 1 300\n");
    assert_fine(&[("a", lost), next]);
    let late = lost.replace("150", "170");
    assert_breach(&[("a", &late), next], Breach::Together, "a:1", "b:1");
}

#[test]
fn only_a_long_stop_excuses() {
    let asleep = "enter a 1 x exclusive 7 90 100\ninside a 1 5000\nleave a 1 5001\n";
    let next = ("b", "enter b 1 x exclusive 8 95 2500\nleave b 1 2600\n");
    let stopped = |from: u64, until: u64| format!("stopped a {from} {until}\n");
    let logs = |stop: &str| judge(&[("a", asleep), next, ("nemesis", stop)]);
    assert_eq!(logs(&stopped(200, 200 + LONG)), []);
    let found = [(Breach::Together, "a:1".to_owned(), "b:1".to_owned())];
    assert_eq!(logs(&stopped(200, 199 + LONG)), found);
    // Nor one of somebody else, nor one that came too late, nor one before it asked.
    assert_eq!(logs("stopped c 200 4000\n"), found);
    assert_eq!(logs(&stopped(2_501, 4_000)), found);
    assert_eq!(logs("stopped a 1 89\n"), found);
}

#[test]
fn who_was_granted_in_its_sleep_may_be_late_and_has_no_fence_of_anothers() {
    let late = "enter a 1 x exclusive 7 90 3000\nleave a 1 3001\n";
    let next = ("b", "enter b 1 x exclusive 8 95 2500\nleave b 1 3100\n");
    let stop = ("nemesis", "stopped a 95 2995\n");
    assert_fine(&[("a", late), next, stop]);
    let found = judge(&[("a", late), next]);
    assert_eq!(found.len(), 2, "{found:?}");
    let again = late.replace(" 7 ", " 8 ");
    let logs = [("a", &*again), next, stop];
    assert_breach(&logs, Breach::FenceReused, "b:1", "a:1");
}

#[test]
fn nonsense_is_refused_with_its_line() {
    for nonsense in [
        "enter a 1 x alone 7 90 100",
        "enter a 1 x exclusive 7 90",
        "inside a 1 100",
        "enter a 1 x exclusive 7 90 100\nleave a 1 99",
        "enter a 1 x exclusive 7 90 100\nleave a 1 110\ninside a 1 120",
        "enter a 1 x exclusive 7 90 100\nenter a 1 x exclusive 8 120 130",
        "write a 1 x exclusive 7 perhaps",
        "hello",
    ] {
        let error = History::default().add("a", &format!("{nonsense}\n"));
        let error = error.unwrap_err().to_string();
        let last = nonsense.lines().last().unwrap_or_default();
        assert!(error.ends_with(last), "{error}");
    }
}

/// A hundred thousand stays are judged at once: nothing compares all with all.
#[test]
fn long_histories_are_judged() {
    let mut text = String::new();
    for stay in 0..100_000u64 {
        let time = stay * 10;
        text += &format!(
            "enter a {stay} x exclusive {} {time} {}\n",
            stay + 1,
            time + 1
        );
        text += &format!("leave a {stay} {}\n", time + 9);
    }
    assert_fine(&[("a", &text)]);
    let late = (
        "b",
        "enter b 1 x exclusive 50001 1 500005\nleave b 1 500006\n",
    );
    let found = judge(&[("a", &text), late]);
    assert!(found.contains(&(Breach::Together, "a:100001".to_owned(), "b:1".to_owned())));
}

/// A lease after the cut its holder must have left; until the cut is healed nobody may come in.
#[test]
fn who_is_inside_without_a_majority_is_found() {
    let stay = |entered: u64, left: u64| {
        let last = left - 1;
        format!(
            "enter 1.run.1 1 x exclusive 7 90 {entered}\ninside 1.run.1 1 {last}\nleave 1.run.1 1 {left}\n"
        )
    };
    let apart = ("laboratory", "apart 1 200 300\n");
    for (entered, left) in [(100, 200), (300, 400)] {
        assert_fine(&[("a", &stay(entered, left)), apart]);
    }
    for (entered, left) in [(100, 201), (250, 260), (299, 400)] {
        let logs = [("a", &*stay(entered, left)), apart];
        assert_breach(&logs, Breach::InsideApart, "laboratory:1", "a:1");
    }
    // Others are not meant, nor is one of whom nothing was seen any more.
    assert_fine(&[("a", &stay(250, 260)), ("laboratory", "apart 11 200 300\n")]);
    let unseen = "enter 1.run.1 1 x exclusive 7 90 100\n";
    assert_fine(&[("a", unseen), apart]);
}

/// Its guard must say after the stop that others have been inside meanwhile.
#[test]
fn a_guard_is_believed_after_a_stop() {
    let stay =
        |how: &str| format!("enter a 1 x exclusive 7 90 100\n{how} a 1 1300\nlost a 1 1310\n");
    let stopped = ("laboratory", "stopped a 110 1200\n");
    let other = ("b", "enter b 1 x exclusive 8 90 900\nleave b 1 950\n");
    assert_fine(&[("a", &stay("inside")), other, stopped]);
    let logs = [("a", &*stay("held")), other, stopped];
    assert_breach(&logs, Breach::Together, "a:1", "b:1");
}

#[test]
fn what_a_store_forgot_excuses_nobody_for_longer_than_until_it_was_told() {
    let forgot = ("laboratory", "forgot 120 180\n");
    let told = (
        "a",
        "enter a 1 x exclusive 7 90 100\ninside a 1 165\nlost a 1 170\n",
    );
    let next = ("b", "enter b 1 x exclusive 8 95 150\nleave b 1 300\n");
    assert_fine(&[forgot, told, next]);
    let both = [
        ("a", "enter a 1 x exclusive 7 90 130\nleave a 1 170\n"),
        ("b", "enter b 1 x exclusive 8 95 140\nleave b 1 160\n"),
    ];
    assert_fine(&[forgot, both[0], both[1]]);
    // Still inside afterwards, or before.
    assert_breach(&[forgot, A, next], Breach::Together, "a:1", "b:1");
    let early = ("b", "enter b 1 x exclusive 8 95 110\nleave b 1 115\n");
    assert_breach(&[forgot, told, early], Breach::Together, "a:1", "b:1");
    // Fences rise all the same; the first of two that are one may have been forgotten.
    let lower = ("b", "enter b 1 x exclusive 6 95 150\nleave b 1 300\n");
    assert_breach(&[forgot, told, lower], Breach::FenceFell, "a:1", "b:1");
    let again = ("b", "enter b 1 x exclusive 7 95 150\nleave b 1 300\n");
    assert_breach(&[forgot, told, again], Breach::FenceReused, "a:1", "b:1");
    assert_fine(&[forgot, both[0], again]);
}
