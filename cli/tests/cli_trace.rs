//! `distlock agent --trace` and `distlock trace`: what real agents write down, and what becomes of
//! it.

mod cli_support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::group::{AgentProcess, Group};
use cli_support::{
    assert_refused, distlock, eventually, exits, output, pid_of, refuses, shiviz, stdout, wrapped,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// What `distlock trace` prints with these arguments.
#[track_caller]
fn trace(args: &[&Path]) -> String {
    let output = output(distlock().arg("trace").args(args));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    stdout(&output)
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// The agent of member `id`, which writes its trace into `traces`.
fn traced(group: &Group, id: usize, traces: &Path) -> AgentProcess {
    let mut command = group.agent_command(id);
    command.arg("--trace").arg(traces);
    AgentProcess::start(command)
}

/// How many entries member `id` has counted in a report.
#[track_caller]
fn row(report: &str, id: usize) -> Vec<String> {
    let id = id.to_string();
    let mut rows = report.lines().map(str::split_whitespace);
    let row = rows.find_map(|mut row| (row.next() == Some(&id)).then_some(row));
    let row = row.unwrap_or_else(|| panic!("no member {id} in {report}"));
    row.map(str::to_owned).collect()
}

/// Three agents, whose printer everybody has twice; then the third is killed inside, and comes
/// back.
fn session() -> (Group, PathBuf) {
    let group = Group::udp(3);
    let traces = group.file("traces");
    let mut agents: Vec<_> = (1..=3).map(|id| traced(&group, id, &traces)).collect();
    for lock in ["printer", "printer", "ring"] {
        for id in 1..=3 {
            exits(group.client(id, ["run", "-w", "30", lock, "true"]), 0);
        }
    }
    let inside = group.hold(3, "printer");
    eventually("its entry is written", || {
        let text = fs::read_to_string(traces.join("shop-3.trace")).expect("a trace");
        text.matches("\"entered\"").count() == 4
    });
    agents.pop().expect("the third").end_by(Signal::SIGKILL);
    // Its view is gone, and somebody else is inside.
    exits(group.client(1, ["run", "-w", "30", "printer", "true"]), 0);
    drop(inside);
    agents.push(traced(&group, 3, &traces));
    exits(group.client(3, ["run", "-w", "30", "printer", "true"]), 0);
    for agent in agents {
        assert!(agent.end_by(Signal::SIGTERM).success());
    }
    (group, traces)
}

#[test]
fn three_agents_are_one_story() {
    let (group, traces) = session();
    let (page, log) = (group.file("run.html"), group.file("run.log"));
    let all = [&traces, path("--diagram"), &page, path("--shiviz"), &log];
    let report = trace(&all);
    assert!(report.starts_with("Group shop, from 20"), "{report}");
    for (id, entries, incarnations, crashes) in
        [(1, "4", "1", "0"), (2, "3", "1", "0"), (3, "5", "2", "1")]
    {
        assert_eq!(
            row(&report, id)[2..],
            [entries, incarnations, crashes],
            "{report}"
        );
    }
    assert!(report.contains("printer: 9 entries\n"), "{report}");
    assert!(report.contains("ring: 3 entries\n"), "{report}");
    for doubt in [
        "cannot be read",
        "without a trace",
        "were lost",
        "before their causes",
    ] {
        assert!(!report.contains(doubt), "{doubt}: {report}");
    }

    let checked = shiviz::check(&fs::read_to_string(&log).expect("a log"));
    let hosts: Vec<_> = checked
        .events
        .iter()
        .map(|(host, _)| host.as_str())
        .collect();
    for host in ["member-1", "member-2", "member-3"] {
        assert!(hosts.contains(&host), "{host}");
    }
    assert_eq!(checked.count(": crashes"), 1);
    // Nine times the printer, and three times ring.
    assert_eq!(checked.count(": enters with fence "), 12);
    // One for each entry of the printer by a member other than its manager, which is member 1. The
    // last one may have reached the manager in a view.
    assert!(
        checked.count(": gets REQUEST") >= 5,
        "{}",
        checked.count(": gets REQUEST")
    );

    let page = fs::read_to_string(&page).expect("a page");
    let count = |what: &str| page.matches(what).count();
    assert_eq!(count("member 3 crashes at"), 1);
    assert_eq!(count(">crash</text>"), 2, "the sign and the legend");
    assert!(
        count("class=\"lane dead\"") >= 2,
        "before the restart, and after the ends"
    );
    // Who was killed may have been heard last when it entered: then its stay has no length.
    assert!((11..=12).contains(&count("class=\"stay\" x=")));
    assert!(page.contains("is in the critical section of ring from"));
    assert_eq!(count("class=\"end\" x1=\"13\""), 1, "in the legend");
    assert!(count(" ends at ") == 3, "{}", count(" ends at "));
    assert!(
        page.contains(
            &report
                .lines()
                .next()
                .expect("a line")
                .replace('"', "&quot;")
        )
    );

    only_a_lock(&traces, &group);
    only_a_time(&traces);
    without_one(&traces, &group);
    with_a_torn_line(&traces, &report);
}

/// A runner and its agent stand still until the others have gone on without it: what its holder lost, when, and which process
/// that was is in the picture and in the story.
#[test]
fn the_end_of_a_lease_is_seen() {
    let group = Group::unix(3);
    let traces = group.file("traces");
    let agents: Vec<_> = (1..=3).map(|id| traced(&group, id, &traces)).collect();
    let holder = group.hold(1, "printer");
    let pid = group.status(2)["locks"][0]["holders"][0]["pid"].clone();
    // The runner would give the lock back before the lease is over.
    let runner = i32::try_from(pid.as_u64().expect("a number")).expect("a process");
    for process in [Pid::from_raw(runner), pid_of(&agents[0].child)] {
        kill(process, Signal::SIGSTOP).expect("it is there");
    }
    exits(group.client(2, ["run", "-w", "30", "printer", "true"]), 0);
    kill(pid_of(&agents[0].child), Signal::SIGCONT).expect("it is there");
    eventually("member 1 has lost it", || {
        let text = fs::read_to_string(traces.join("shop-1.trace")).expect("a trace");
        text.contains("\"lost\"") && text.contains("lease_end")
    });
    drop(holder);
    drop(agents);
    let picture = group.file("run.svg");
    let report = trace(&[&traces, path("--diagram"), &picture, path("--story")]);
    assert!(report.contains(&format!(", as process {pid}")), "{report}");
    assert!(
        report.contains("is told that the lock is lost: its lease ends at "),
        "{report}"
    );
    let picture = fs::read_to_string(&picture).expect("a picture");
    assert!(picture.contains("<title>the lease of member 1 ends at "));
    assert!(
        picture.contains("the holder's lease ends</text>"),
        "the legend"
    );
    assert!(picture.contains(&format!(", as process {pid}</title>")));
}

fn only_a_lock(traces: &Path, group: &Group) {
    let log = group.file("ring.log");
    let report = trace(&[traces, path("--lock"), path("ring"), path("--shiviz"), &log]);
    assert!(report.contains("ring: 3 entries\n"), "{report}");
    assert!(!report.contains("printer"), "{report}");
    let checked = shiviz::check(&fs::read_to_string(&log).expect("a log"));
    assert_eq!(checked.count(": enters"), 3);
    assert_eq!(checked.count("printer"), 0);
    assert!(checked.count(": installs the view of 1, 2, 3") >= 3);
}

fn only_a_time(traces: &Path) {
    let story = trace(&[traces, path("--story")]);
    let crash = story.lines().find(|line| line.contains("crashes"));
    let crash = crash.and_then(|line| line.split_whitespace().next());
    let millis: f64 = crash.expect("a crash").parse().expect("a number");
    let since = format!("{}", millis / 1_000.0 + 0.001);
    let rest = trace(&[traces, path("--story"), path("--since"), path(&since)]);
    assert!(!rest.contains("crashes"), "{rest}");
    assert!(rest.contains("installs the view of 1, 2\n"), "{rest}");
    assert!(rest.lines().count() < story.lines().count());
    let late = ["--since", "2999-01-01T00:00:00Z"];
    let refused = output(distlock().arg("trace").arg(traces).args(late));
    // Beyond what a date can be here, and then beyond the end of the trace.
    assert_refused(&refused, 64, &["2026-01-31T12:00:00"]);
    let refused = output(
        distlock()
            .arg("trace")
            .arg(traces)
            .args(["--since", "9999"]),
    );
    assert_refused(&refused, 64, &["nothing happened"]);
}

fn without_one(traces: &Path, group: &Group) {
    let [one, three] = ["shop-1.trace", "shop-3.trace"].map(|name| traces.join(name));
    let log = group.file("two.log");
    let report = trace(&[&one, &three, path("--shiviz"), &log]);
    assert_eq!(row(&report, 2)[..2], ["no", "trace"], "{report}");
    assert!(report.contains("members without a trace"), "{report}");
    let checked = shiviz::check(&fs::read_to_string(&log).expect("a log"));
    assert!(checked.count(": gets REQUEST from 2") > 0);
    assert!(checked.events.iter().all(|(host, _)| host != "member-2"));
}

/// A killed agent can leave half a line, and what comes after it is whole again.
fn with_a_torn_line(traces: &Path, before: &str) {
    let file = traces.join("shop-2.trace");
    let whole = fs::metadata(&file).expect("a trace").len();
    let torn = File::options().write(true).open(&file).expect("a trace");
    torn.set_len(whole - 7).expect("it is cut");
    let report = trace(&[traces]);
    assert!(report.contains("1 lines cannot be read"), "{report}");
    assert_eq!(row(&report, 2)[2..4], row(before, 2)[2..4], "{report}");
}

/// The environment says where the others write, and all that are members do.
#[test]
fn members_of_their_own_write_too() {
    let group = Group::udp(1);
    let traces = group.file("traces");
    let mut run = group.member(1, ["run", "-w", "30", "printer", "true"]);
    exits(run.env("DISTLOCK_TRACE", &traces), 0);
    let report = trace(&[&traces]);
    assert_eq!(row(&report, 1)[2..], ["1", "1", "0"], "{report}");
}

/// What the trace needs and does not get is no loss to the agent.
#[test]
fn a_full_disk_takes_the_trace_and_nothing_else() {
    let group = Group::udp(1);
    let traces = group.file("traces");
    let log = group.file("agent.log");
    let plain = group.agent_command(1);
    // No file of the agent can be longer than 2 KiB, as on a disk that is full then.
    let mut command = Command::new("bash");
    command.args(["-c", r#"trap '' XFSZ; ulimit -f 2; exec "$0" "$@""#]);
    let mut command = wrapped(command, &plain);
    command.arg("--trace").arg(&traces);
    let written = File::create(&log).expect("a file");
    let agent = AgentProcess::start_with_log(&mut command, written);
    for _ in 0..20 {
        exits(group.client(1, ["run", "-w", "30", "printer", "true"]), 0);
    }
    assert!(agent.end_by(Signal::SIGTERM).success());
    let told = fs::read_to_string(&log).expect("what it told");
    assert_eq!(told.matches("ends here").count(), 1, "{told}");
    assert!(told.contains("File too large"), "{told}");
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let head = |group: &str| {
        format!(
            "{{\"distlock_trace\":1,\"group\":\"{group}\",\"member\":1,\"host\":\"a\",\
             \"clock\":\"x\",\"at\":1,\"wall\":1}}\n{{\"life\":1,\"n\":1,\"at\":5,\"what\":\
             \"began\"}}\n"
        )
    };
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("room");
        path
    };
    let refused = |args: &[&Path], code, words: &[&str]| {
        refuses(distlock().arg("trace").args(args), code, words);
    };
    let [shop, lab] = ["shop", "lab"].map(|group| file(&format!("{group}.trace"), &head(group)));
    trace(&[&shop]);
    refused(&[&shop, &lab], 64, &["shop", "lab", "one group"]);
    refused(&[dir.path()], 64, &["one group"]);
    let other = head("shop").replace("\"at\":5", "\"at\":6");
    let other = file("other", &other);
    refused(&[&shop, &other], 64, &["two groups of one name"]);
    let new = file("new", &head("shop").replace(":1,\"group", ":2,\"group"));
    refused(&[&new], 64, &["format 2", "version"]);
    let text = file("text", "hello\n");
    refused(&[&text], 64, &["text", "no trace"]);
    let empty = file("empty", "");
    refused(&[&empty], 64, &["no event"]);
    refused(&[path("/nonexistent")], 66, &["/nonexistent"]);
    let bare = TempDir::new().expect("a directory");
    refused(&[bare.path()], 66, &[".trace"]);
    refused(&[&shop, path("--diagram"), path("x.png")], 64, &[".svg"]);
    refused(&[&shop, path("--since"), path("noon")], 64, &["2026-01-31"]);
    refused(&[&shop, path("--lock"), path("")], 64, &["empty"]);
    refused(&[], 64, &["FILE"]);
    let unwritable = [&*shop, path("--diagram"), path("/nonexistent/x.svg")];
    refused(&unwritable, 66, &["/nonexistent/x.svg"]);
}

/// Nothing is written where nobody asks for it.
#[test]
fn nobody_is_traced_unasked() {
    let group = Group::udp(1);
    let mut run: Command = group.member(1, ["run", "-w", "30", "printer", "true"]);
    exits(run.current_dir(group.state()), 0);
    let mut files = Vec::new();
    eventually("the state is all there is", || {
        files = cli_support::files(&group.state());
        !files.is_empty()
    });
    let is_trace = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "trace");
    assert!(!files.iter().any(is_trace), "{files:?}");
}
