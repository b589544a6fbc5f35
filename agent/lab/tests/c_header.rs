//! The committed header of the C library is the one that the sources make.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = lab.ancestors().nth(2).expect("the repository");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    let files = [
        "ffi.rs",
        "ffi/options.rs",
        "ffi/functions/agent.rs",
        "ffi/functions/mutex.rs",
        "ffi/functions/sem.rs",
        "ffi/functions/fence.rs",
    ];
    files
        .iter()
        .map(|file| root.join("src").join(file))
        .fold(cbindgen::Builder::new(), cbindgen::Builder::with_src)
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/distlock.h");
    if std::env::var_os("DISTLOCK_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(
        made == committed,
        "{} is out of date; DISTLOCK_BLESS=1 cargo test -p distlock-lab --test c_header makes it anew",
        path.display()
    );
}
