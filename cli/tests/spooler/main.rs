//! The print spooler example, as processes: who takes turns prints whole files, who does not, does
//! not; against a printer of its own and against CUPS's `ippeveprinter`.
//!
//! `cargo test` builds the example first; `cargo test --test spooler` alone does not.

// The example's own checker and runner: `turns.rs` shows that the checker can fail.
#[path = "../../../examples/print_spooler/check.rs"]
mod check;
#[path = "../../../examples/print_spooler/hosts.rs"]
mod hosts;

mod demonstration;
mod messages;
mod network;
mod printers;
mod turns;

use std::path::PathBuf;
use std::process::{Child, Command};

/// The example's program, beside which cargo puts the tests.
fn print_spooler() -> Command {
    let test = std::env::current_exe().expect("the test has a path");
    let program: PathBuf = test
        .ancestors()
        .nth(2)
        .expect("it is in deps/")
        .join("examples/print_spooler");
    assert!(
        program.exists(),
        "build it first: cargo build --example print_spooler"
    );
    Command::new(program)
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
