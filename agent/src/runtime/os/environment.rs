//! The environment of the process, of which a program with more rights than its caller sees nothing.
//!
//! Whoever starts a set-user-ID program chooses its environment, and so would choose which group it
//! takes part in and where its files are. As secure_getenv(3) does, the kernel is asked whether the
//! process got rights by its execution (`AT_SECURE`: the set-user-ID and set-group-ID bits, file
//! capabilities, and what a security module decides).

use std::env;
use std::ffi::OsString;

/// The value of the variable `name`. `None` if it is not set or is set to nothing, and always in a
/// program that runs with more rights than its caller has.
///
/// All variables that say something to distlock are read by this function.
pub fn variable(name: &str) -> Option<OsString> {
    if has_gained_rights() {
        return None;
    }
    env::var_os(name).filter(|value| !value.is_empty())
}

/// All of it, as a child of this process inherits it. Nothing in it says anything to distlock.
pub fn for_child() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os()
}

/// Whether the process got rights by its execution that its caller may not have.
fn has_gained_rights() -> bool {
    #[expect(unsafe_code, reason = "nix has no wrapper for getauxval")]
    // SAFETY: it looks up a number in what the kernel has left with the process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) };
    secure != 0
}
