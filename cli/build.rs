//! Puts GCC's unwinder into the program. To load it as a library of its own takes a tenth of a
//! millisecond, at every start of `distlock run`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name: &str| env::var(format!("CARGO_CFG_{name}")).unwrap_or_default();
    let is_glibc = set("TARGET_OS") == "linux" && set("TARGET_ENV") == "gnu";
    // The compiler of another machine need not have one for this.
    if !is_glibc || env::var("HOST") != env::var("TARGET") {
        return;
    }
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let asked = Command::new(compiler)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let said = asked.map(|said| said.stdout).unwrap_or_default();
    let archive = String::from_utf8_lossy(&said);
    // What the compiler does not find it says without a directory.
    if let Some(directory) = Path::new(archive.trim())
        .parent()
        .filter(|it| it.is_absolute())
    {
        println!("cargo::rustc-link-search=native={}", directory.display());
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}
