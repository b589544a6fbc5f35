use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use mio::Poll;
use nix::unistd::geteuid;
use tracing::subscriber;

use super::*;
use crate::runtime::shared::alone;
use crate::runtime::warnings::Warnings;

/// What has the lifeline open is a process that the agent cannot end: of a command whose runner was
/// killed before the agent had read which it is, or one that has left the command's process group.
#[test]
fn what_stays_though_the_command_was_killed_is_told_of_once() {
    for is_known in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let agent = alone(place.path(), None);
        let poll = Poll::new().unwrap();
        let (directory, _) = LifelineDir::open(place.path()).unwrap();
        let mut lifelines = Lifelines::new(directory);
        let mut command = Command::new("sleep");
        let mut command = command.arg("600").process_group(0).spawn().unwrap();
        let mut lifeline = lifelines.make(geteuid().as_raw()).unwrap();
        let (writer, _) = lifeline.ends().unwrap();
        // Only its own runner is believed which command it is.
        let runner = if is_known { process::id() } else { 1 };
        lifeline.set_command(command.id(), runner);
        assert_eq!(lifeline.has_command(), is_known);

        let owner = (ClientId(1), 1);
        let end = (Ticket(1), Release::Abandoned);
        lifelines.wait_for(lifeline, end, owner, poll.registry());
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        subscriber::with_default(warnings, || {
            let start = clock::now();
            lifelines.kill(owner);
            let next = lifelines.work(&agent.shared).expect("it has to tell");
            assert_eq!(*told.lock().unwrap(), "", "most commands end in a moment");
            assert!(next <= start + 2 * TELL_AFTER);
            while clock::now() < start + 2 * TELL_AFTER {
                lifelines.work(&agent.shared);
                lifelines.kill(owner);
                clock::sleep(LOOK);
            }
        });
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("/lifelines/0"), "{told}");
        let pid = command.id().to_string();
        assert_eq!(told.contains(&format!("command {pid}")), is_known, "{told}");
        drop(writer);
        command.kill().unwrap();
        command.wait().unwrap();
    }
}
