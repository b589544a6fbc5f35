//! `distlock doctor`: what is wrong on this host, in its group, and in its configuration, and what to do.
//!
//! [`gather`] looks at the host, reads the configuration, and asks the agent; it judges nothing.
//! [`checks`] judge what was gathered; they look at nothing themselves.

mod checks;
mod facts;
mod finding;
mod gather;

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use crate::args::Doctor;
use crate::exit::{self, Failure};
use checks::CHECKS;
use finding::{Finding, Outcome};

/// The number of the JSON's schema. Fields and checks may be added under the same number.
const SCHEMA: u32 = 1;

/// Looks for faults, and tells of each check how it went. Exits with 0 if all is well, 1 if there is a
/// warning, 2 if something fails.
///
/// # Errors
/// 64 if the command line names no group that can be looked at, 74 if the findings cannot be printed.
pub(crate) fn doctor(args: &Doctor) -> Result<ExitCode, Failure> {
    let facts = gather::gather(&args.group)?;
    let is_told = facts.status().is_some_and(|status| status.store.is_some());
    if is_told
        || facts
            .config()
            .is_some_and(|config| config.store().is_some())
    {
        let what = "a store has the locks of this group, and doctor looks at members; run \
                    'distlock store check'";
        return Err(Failure::usage(what, "doctor"));
    }
    let findings: Vec<_> = CHECKS.iter().map(|check| check(&facts)).collect();
    let text = match args.json {
        true => json(&findings),
        false => lines(&findings),
    };
    exit::print(text.as_bytes(), "the findings")?;
    Ok(ExitCode::from(code(&findings)))
}

/// As Nagios and its like read it.
fn code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|it| it.result).max() {
        Some(Outcome::Fail) => 2,
        Some(Outcome::Warn) => 1,
        Some(Outcome::Skipped | Outcome::Ok) | None => 0,
    }
}

fn json(findings: &[Finding]) -> String {
    #[derive(Serialize)]
    struct Whole<'a> {
        schema: u32,
        checks: &'a [Finding],
    }
    let whole = Whole {
        schema: SCHEMA,
        checks: findings,
    };
    // A finding's words are on one line, and mislead nobody who reads them.
    let mut text = serde_json::to_string(&whole).expect("plain data");
    text.push('\n');
    text
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let ok = || Finding::ok("a", "x");
        let skipped = || Finding::skipped("b", "no agent", "start it");
        let warn = || Finding::warn("c", "x", "y");
        let fail = || Finding::fail("d", "x", "y");
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[ok(), skipped()]), 0);
        assert_eq!(code(&[warn(), ok(), skipped()]), 1);
        assert_eq!(code(&[fail(), warn(), ok()]), 2);
    }

    #[test]
    fn a_finding_is_one_line_and_one_object() {
        let findings = [
            Finding::ok("lease", "5s"),
            Finding::skipped("mtu", "no configuration", "name it"),
            Finding::fail("agent", "a\nb\u{202e}", "start it"),
        ];
        assert_eq!(
            lines(&findings),
            "ok      lease: 5s\n\
             skipped mtu: not looked at: no configuration; name it\n\
             fail    agent: a b\\u{202e}; start it\n"
        );
        assert_eq!(
            json(&findings[..2]),
            "{\"schema\":1,\"checks\":[\
             {\"id\":\"lease\",\"result\":\"ok\",\"what\":\"5s\",\"advice\":\"\"},\
             {\"id\":\"mtu\",\"result\":\"skipped\",\"what\":\"not looked at: no configuration\",\
             \"advice\":\"name it\"}]}\n"
        );
    }
}
