//! The print spooler, as processes: hosts that take turns print whole files, and hosts that do not, do
//! not; against a printer of its own and against CUPS's `ippeveprinter`.

// The program's own checker and runner: `turns.rs` shows that the checker can fail.
#[path = "../../src/check.rs"]
mod check;
#[path = "../../src/hosts.rs"]
mod hosts;

mod demonstration;
mod messages;
mod network;
mod printers;
mod turns;

use std::process::{Child, Command};

fn print_spooler() -> Command {
    Command::new(env!("CARGO_BIN_EXE_print_spooler"))
}

/// A process that ends with the test, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
