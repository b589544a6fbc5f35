//! Mutual exclusion in a program, through the group of this host.

use distlock::{Agent, DistMutex};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::open()?; // this host's agent, else the processes of this user
    let printer = agent.mutex("printer")?;
    let guard = printer.lock()?; // blocks until it is our turn
    if let Some(fence) = guard.fence() {
        println!("inside, fence {fence}");
    }
    guard.unlock()?; // or drop it
    Ok(())
}
