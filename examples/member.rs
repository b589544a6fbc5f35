//! A program that is a member of a configured group itself.

use distlock::{Agent, Config, DistMutex};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::from_config(Config::load("shop.toml")?.node(4))?;
    let guard = agent.mutex("printer")?.lock()?; // waits for the group to form
    println!("inside, fence {:?}", guard.fence());
    Ok(())
}
