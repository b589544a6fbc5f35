#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| distlock_agent::fuzz::service(bytes));
