//! Nothing but benchmarks: `cargo bench -p distlock-benches`.
