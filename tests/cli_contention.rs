//! `distlock run` in numbers: many at once, and what one costs beside flock(1).

mod cli_support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::{Local, files};

#[test]
fn a_hundred_and_twenty_take_turns_and_leave_nothing_behind() {
    const RUNNERS: usize = 120;
    let group = Local::new();
    assert_eq!(group.run(["x", "true"]), Some(0));
    let before = files(&group.group());
    let (inside, log) = (group.file("inside"), group.file("log"));
    // A second one inside would find the directory there, and fail.
    let script = format!(
        "mkdir {inside} || exit 99; echo $DISTLOCK_FENCE >> {log}; rmdir {inside}",
        inside = inside.display(),
        log = log.display()
    );
    let start = SystemTime::now();
    let runners: Vec<_> = (0..RUNNERS)
        .map(|_| {
            let mut command = group.distlock(["run", "x", "--", "sh", "-c", &script]);
            command.stdin(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    for mut runner in runners {
        assert_eq!(runner.wait().expect("it ends").code(), Some(0));
    }
    let took = start.elapsed().expect("the clock goes on");
    assert!(took < Duration::from_secs(12), "{took:?}");

    let fences = fs::read_to_string(log).expect("a log");
    let fences: Vec<u64> = fences
        .lines()
        .map(|line| line.parse().expect("a fence"))
        .collect();
    assert_eq!(fences.len(), RUNNERS);
    assert!(
        fences.is_sorted_by(|a, b| a < b),
        "in the order of the grants: {fences:?}"
    );
    assert_eq!(files(&group.group()), before, "nothing is left behind");
    assert_eq!(group.status()["locks"], serde_json::json!([]));
}

#[test]
fn one_costs_at_most_four_times_flock() {
    const ROUNDS: usize = 101;
    let group = Local::new();
    let file = group.file("file");
    let time = |command: &mut Command| {
        let start = SystemTime::now();
        assert!(command.status().expect("it starts").success());
        start.elapsed().unwrap_or_default()
    };
    let mut flock = Command::new("flock");
    flock.arg(&file).arg("true");
    let mut distlock = group.distlock(["run", "x", "--", "true"]);
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(time(&mut flock));
        ours.push(time(&mut distlock));
    }
    theirs.sort_unstable();
    ours.sort_unstable();
    let (theirs, ours) = (theirs[ROUNDS / 2], ours[ROUNDS / 2]);
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("flock {theirs:?}, distlock run {ours:?}: {ratio:.2} times");
    assert!(
        ratio <= 4.0,
        "flock {theirs:?}, distlock run {ours:?}: {ratio:.2} times"
    );
}
