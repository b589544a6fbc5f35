//! A member without a thread: the program drives its agent.

use std::task::Poll;

use distlock::{Config, DistMutex, Driven};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driven = Driven::from_config(Config::load("shop.toml")?.node(4))?;
    let mut waiting = driven.agent().mutex("printer")?.begin()?;
    let guard = loop {
        // … poll(2) `driven` and the program's own descriptors …
        driven.process()?; // waits for nothing but the disk
        if let Poll::Ready(outcome) = waiting.poll() {
            break outcome?;
        }
    };
    println!("inside, fence {:?}", guard.fence());
    Ok(())
}
