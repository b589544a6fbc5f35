use std::os::unix::process::CommandExt;
use std::process::{self, Command};

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

/// What has the lifeline open is a process that the agent cannot end: here, this test.
#[test]
fn what_stays_though_the_command_was_killed_is_told() {
    for is_known in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let agent = alone(place.path(), None);
        let poll = Poll::new().unwrap();
        let (directory, _) = LifelineDir::open(place.path()).unwrap();
        let mut lifelines = Lifelines::new(directory);
        let mut command = Command::new("sleep");
        let mut command = command.arg("600").process_group(0).spawn().unwrap();
        let (client, id) = (ClientId(1), 1);
        let mut lifeline = lifelines.make(geteuid().as_raw()).unwrap();
        let (writer, _) = lifeline.ends().unwrap();
        // Its runner may be gone before the agent has read of the command.
        let runner = if is_known { process::id() } else { 1 };
        lifeline.set_command(command.id(), runner);
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
        command.kill().unwrap();
        command.wait().unwrap();
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.starts_with("lock printer stays taken"), "{told}");
        let of_command = format!("what the command {} has", command.id());
        assert_eq!(told.contains(&of_command), is_known, "{told}");
        let path = told.split_whitespace().find(|word| word.starts_with('/'));
        assert!(std::path::Path::new(path.unwrap()).exists(), "{told}");
        drop(writer);
    }
}
