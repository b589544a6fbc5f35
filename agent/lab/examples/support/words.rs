//! Words of traces and panics.

use std::any::Any;
use std::fmt;
use std::io::{self, Write as _};

/// Tells one line of a trace; a reader that has seen enough, such as a pager, ends it.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    if writeln!(io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// What a panic says.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", words.unwrap_or("without words"))
}
