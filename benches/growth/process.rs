//! A process that does as it is told: a line of words each time, which it answers with a line of numbers.
//! What it costs, the kernel tells.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// It ends when its input does.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// What a process has used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// The processor's time, in nanoseconds.
    pub(crate) processor: f64,
    /// How often a thread that it still has has waited for something, and was woken.
    pub(crate) wakeups: f64,
}

impl Process {
    /// Runs this program once more, with these variables.
    pub(crate) fn start(variables: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("we have a path"));
        command.envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("we can be run again");
        let output = child.stdout.take().expect("it is piped");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
        }
    }

    pub(crate) fn ask(&mut self, question: &str) -> Vec<f64> {
        self.tell(question);
        self.answer()
    }

    pub(crate) fn tell(&mut self, question: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{question}").expect("the process runs: it has said why not");
    }

    pub(crate) fn answer(&mut self) -> Vec<f64> {
        let line = self.output.next().expect("it has said why it ended");
        let line = line.expect("it writes text");
        let numbers = line.split_terminator(' ');
        numbers.map(|it| it.parse().expect("a number")).collect()
    }

    pub(crate) fn usage(&self) -> Usage {
        let id = self.child.id();
        // In nanoseconds, no ticks; and of threads, too, that have ended.
        let clock = clock_getcpuclockid(Pid::from_raw(id.cast_signed()));
        let processor = clock.and_then(clock_gettime).expect("it runs");
        let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
        let wakeups = tasks.flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("status")).ok()?;
            let line = text.split("\nvoluntary_ctxt_switches:").nth(1)?;
            line.lines().next()?.trim().parse::<f64>().ok()
        });
        Usage {
            processor: Duration::from(processor).as_nanos() as f64,
            wakeups: wakeups.sum(),
        }
    }

    /// The memory that it alone has, in bytes.
    pub(crate) fn memory(&self) -> f64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = fs::read_to_string(path).expect("it runs");
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        let kibibytes =
            private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kibibytes.sum::<f64>() * 1024.0
    }
}

/// How many datagrams have come by UDP, to anybody on this host. (To ask a member for its own number, it
/// would have to ask the others.)
pub(crate) fn datagrams() -> f64 {
    let text = fs::read_to_string("/proc/net/snmp").expect("the kernel counts them");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = lines.next().into_iter().flat_map(|line| line.split(' '));
    let mut numbers = lines.next().into_iter().flat_map(|line| line.split(' '));
    let place = names.take_while(|name| *name != "InDatagrams").count();
    let number = numbers.nth(place).and_then(|number| number.parse().ok());
    number.expect("it is one of them")
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        if std::thread::panicking() {
            // It may wait for a lock that never comes. It fails only if it has ended.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
