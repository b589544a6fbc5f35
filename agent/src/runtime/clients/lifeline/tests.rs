use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command};

use mio::Poll;
use nix::unistd::geteuid;
use tracing::subscriber;

use super::*;
use crate::protocol::{LockName, Mode};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::patience::Patience;
use crate::runtime::shared::alone;
use crate::runtime::shared::entry::Sink;
use crate::runtime::warnings::Warnings;

/// A command that does nothing, and ends with its test.
struct Idle(Child);

impl Idle {
    fn start() -> Self {
        Self(
            Command::new("sleep")
                .arg("600")
                .process_group(0)
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What has the lifeline open is a process that the agent cannot end: here, this test.
#[test]
fn what_stays_though_the_command_was_killed_is_told() {
    for is_known in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let agent = alone(place.path(), None);
        let poll = Poll::new().unwrap();
        let (directory, _) = LifelineDir::open(place.path()).unwrap();
        let mut lifelines = Lifelines::new(directory);
        let command = Idle::start();
        let (client, id) = (ClientId(1), 1);
        let mut lifeline = lifelines.make(geteuid().as_raw()).unwrap();
        let (writer, _) = lifeline.ends().unwrap();
        // Its runner may be gone before the agent has read of the command.
        let runner = if is_known { process::id() } else { 1 };
        lifeline.set_command(command.0.id(), runner);
        assert_eq!(lifeline.has_command(), is_known);

        let mut core = agent.shared.lock_core();
        let lock = LockName::new("printer").unwrap();
        let wait = Patience::Forever.wait();
        let sink = Sink::Client { client, id };
        let ticket = core.ask(lock, None, Mode::Exclusive, wait, Caller::current(), sink);
        let end = (ticket.unwrap(), Release::Abandoned);
        drop(core);
        lifelines.wait_for(lifeline, end, (client, id), poll.registry());
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        subscriber::with_default(warnings, || {
            let start = clock::now();
            lifelines.kill((client, id));
            let mut rounds_after = 0;
            while rounds_after < 30 {
                let next = lifelines.work(&agent.shared);
                let now = clock::now();
                let is_told = !told.lock().unwrap().is_empty();
                rounds_after += u32::from(is_told);
                assert!(is_told || next.is_some(), "it is never told");
                assert!(
                    !is_told || now >= start + TELL_AFTER,
                    "most end in a moment"
                );
                assert!(next.is_none_or(|next| next >= start + TELL_AFTER));
                clock::sleep(LOOK);
            }
        });
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.starts_with("lock printer stays taken"), "{told}");
        let of_command = format!("what the command {} has", command.0.id());
        assert_eq!(told.contains(&of_command), is_known, "{told}");
        let path = told.split_whitespace().find(|word| word.starts_with('/'));
        assert!(std::path::Path::new(path.unwrap()).exists(), "{told}");
        drop(writer);
    }
}

#[test]
fn an_agent_that_ends_with_its_session_tells_once_of_what_it_cannot_end() {
    let lease = Duration::from_millis(500);
    let place = tempfile::tempdir().unwrap();
    let (directory, _) = LifelineDir::open(place.path()).unwrap();
    let lifelines = Lifelines::new(directory);
    let commands = [Idle::start(), Idle::start()];
    // What the second command has started is this test.
    let mut writers = Vec::new();
    let those: Vec<_> = commands
        .iter()
        .map(|command| {
            let mut lifeline = lifelines.make(geteuid().as_raw()).unwrap();
            writers.push(lifeline.ends().unwrap().0);
            lifeline.set_command(command.0.id(), process::id());
            lifeline
        })
        .collect();
    drop(writers.remove(0));
    let warnings = Warnings::default();
    let told = Arc::clone(&warnings.told);
    let start = clock::now();
    let mut rounds = 0;
    subscriber::with_default(warnings, || {
        end_all(those, start + lease, lease, || rounds += 1);
    });
    assert!(clock::now() >= start + lease);
    assert!(rounds > 1, "the rest of the agent goes on meanwhile");
    let told = told.lock().unwrap();
    let begin = format!(
        "a lock was lost: what the command {} has started still runs;",
        commands[1].0.id()
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with(&begin), "{told}");
}
