//! Runs hosts, each a process that prints its files, and hears what they report.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::check::Report;

/// How long nothing may happen before the hosts are given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host's process. It is ended when this is dropped.
struct Host(Child);

enum Event {
    Printed(Report),
    /// The host says no more.
    Ended,
    /// The host says what it should not.
    Odd(String),
}

/// Starts the hosts, and returns the reports of `files` files in all, once every host has ended.
///
/// # Errors
///
/// A host that cannot be started, fails or stands still; none is left running then.
pub(crate) fn run(commands: Vec<Command>, files: usize) -> Result<Vec<Report>, Box<dyn Error>> {
    let (events, inbox) = bounded(commands.len());
    let mut hosts = commands
        .into_iter()
        .map(|command| Host::start(command, events.clone()))
        .collect::<Result<Vec<_>, _>>()?;

    let mut reports = Vec::new();
    while reports.len() < files {
        match next(&inbox)? {
            Event::Printed(report) => reports.push(report),
            Event::Ended => return Err("a host ended before its time".into()),
            Event::Odd(error) => return Err(error.into()),
        }
    }
    // Who prints needs a majority of the members: so all stay until the last has printed.
    for host in &mut hosts {
        drop(host.0.stdin.take());
    }
    for _ in 0..hosts.len() {
        match next(&inbox)? {
            Event::Ended => {}
            Event::Printed(Report { name, .. }) => return Err(format!("{name} came late").into()),
            Event::Odd(error) => return Err(error.into()),
        }
    }
    for host in &mut hosts {
        let status = host.0.wait()?;
        if !status.success() {
            return Err(format!("a host ended with {status}").into());
        }
    }
    Ok(reports)
}

fn next(inbox: &Receiver<Event>) -> Result<Event, String> {
    let patience = PATIENCE.as_secs();
    inbox
        .recv_timeout(PATIENCE)
        .map_err(|_| format!("the hosts did nothing for {patience} s"))
}

impl Host {
    fn start(mut command: Command, events: Sender<Event>) -> Result<Self, Box<dyn Error>> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
        let output = child.stdout.take().expect("it is piped");
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens any more once one of the hosts has failed.
                let _ = events.send(line.parse().map_or_else(Event::Odd, Event::Printed));
            }
            let _ = events.send(Event::Ended);
        });
        Ok(Self(child))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
