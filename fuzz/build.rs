//! Exports what `service/system.rs` has in place of the C library's `getrandom`: the crate that calls
//! it looks it up by its name when the program runs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bin=service=-Wl,--export-dynamic-symbol=getrandom");
}
