//! Whatever a file says: an answer, and one that names the line where it is no.
#![no_main]

use distlock::{Config, ConfigError};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    match Config::parse(text) {
        Ok(config) => {
            for id in config.members().keys() {
                assert_eq!(config.node(id.as_u16()).expect("it is listed").me(), *id);
            }
        }
        Err(ConfigError::Invalid { line, reason, .. }) => {
            assert!(line <= 1 + text.lines().count() && !reason.is_empty());
        }
        Err(error) => panic!("{error}"),
    }
});
