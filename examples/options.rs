//! Options of a lock, which hold for one handle.

use distlock::{Agent, DistMutex, LockOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::open()?;
    let options = LockOptions::new()
        .command("nightly report")
        .abort_on_loss(true);
    let guard = agent.mutex_with("report", &options)?.lock()?;
    guard.unlock()?;
    Ok(())
}
