//! The checker finds what it is there for: without this, the other tests could not fail.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::check::{self, Paper, Report};

const NAMES: [&str; 2] = ["a", "b"];

fn files() -> BTreeMap<String, String> {
    NAMES
        .map(|name| (name.to_owned(), check::text(name, 3)))
        .into()
}

fn printed(name: &str, fence: u64) -> String {
    format!("==== {name}, fence {fence}\n{}", check::text(name, 3))
}

fn read(paper: &str) -> Paper {
    Paper::read(paper, &files()).unwrap()
}

fn reports() -> Vec<Report> {
    let report = |name: &str, fence, ms| Report {
        fence: Some(fence),
        requested: Duration::ZERO,
        granted: Duration::from_millis(ms),
        released: Duration::from_millis(ms + 10),
        name: name.to_owned(),
    };
    vec![report("b", 8, 20), report("a", 7, 10)]
}

#[test]
fn whole_files_in_turn_pass() {
    let paper = read(&(printed("a", 7) + &printed("b", 8)));
    assert_eq!(
        paper.whole,
        [("a".to_owned(), Some(7)), ("b".to_owned(), Some(8))]
    );
    assert_eq!((paper.torn.len(), paper.changes), (0, 1));
    paper.check_turns(&mut reports()).unwrap();
}

#[test]
fn a_file_in_two_pieces_is_torn() {
    let (a, b) = (printed("a", 7), printed("b", 8));
    let middle = a.find('\n').unwrap() + 1;
    let paper = read(&format!("{}{b}{}", &a[..middle], &a[middle..]));
    assert_eq!(paper.torn, ["a"]);
    assert_eq!(paper.changes, 2);
    paper.check_turns(&mut reports()).unwrap_err();
}

#[test]
fn a_file_with_a_line_missing_or_twice_or_not_at_all_is_torn() {
    let (a, b) = (printed("a", 7), printed("b", 8));
    let lines: Vec<_> = a.split_inclusive('\n').collect();
    for broken in [
        lines[..3].concat(),
        lines[1..].concat(),
        [lines[0], lines[1], lines[1], lines[2], lines[3]].concat(),
        [lines[0], lines[2], lines[1], lines[3]].concat(),
        String::new(),
    ] {
        assert_eq!(read(&(broken + &b)).torn, ["a"]);
    }
    assert_eq!(
        read(&format!("{a}{b}{}", lines[1])).torn,
        ["a"],
        "whole, and a piece again"
    );
}

#[test]
fn a_line_from_nowhere_is_an_error() {
    Paper::read("who sent this?\n", &files()).unwrap_err();
    Paper::read("==== c, fence 1\n", &files()).unwrap_err();
    Paper::read("==== a, fence x\n", &files()).unwrap_err();
}

#[test]
fn another_order_than_the_grants_is_found() {
    let error = read(&(printed("b", 8) + &printed("a", 7))).check_turns(&mut reports());
    assert!(error.unwrap_err().contains("order of the grants"));
}

#[test]
fn another_fence_on_the_paper_is_found() {
    read(&(printed("a", 6) + &printed("b", 8)))
        .check_turns(&mut reports())
        .unwrap_err();
}

#[test]
fn two_at_once_are_found() {
    let mut reports = reports();
    reports[1].released = Duration::from_millis(21);
    let error = read(&(printed("a", 7) + &printed("b", 8))).check_turns(&mut reports);
    assert!(error.unwrap_err().contains("at once"));
}

#[test]
fn fences_that_do_not_rise_are_found() {
    for fence in [Some(7), Some(6), None] {
        let mut reports = reports();
        reports[0].fence = fence;
        let banner = fence.map_or("no fence".to_owned(), |fence| format!("fence {fence}"));
        let text = printed("a", 7) + &printed("b", 8).replace("fence 8", &banner);
        let error = read(&text).check_turns(&mut reports);
        assert!(error.unwrap_err().contains("fences"));
    }
}

#[test]
fn reports_survive_the_way() {
    for report in reports() {
        assert_eq!(report.to_string().parse(), Ok(report));
    }
    "printed 1 2 3".parse::<Report>().unwrap_err();
}
