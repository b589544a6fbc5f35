//! What a check has found.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::exit::one_line;

/// How a check went; what is worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// All is well.
    Ok,
    /// It could not be looked at.
    Skipped,
    /// Something is to be seen to, and the group goes on.
    Warn,
    /// Something keeps this host's programs from locks, or will.
    Fail,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What one check has found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The check, by a name that stays.
    pub(crate) id: &'static str,
    pub(crate) result: Outcome,
    pub(crate) what: String,
    /// What to do; empty if nothing is.
    pub(crate) advice: String,
}

impl Finding {
    pub(crate) fn ok(id: &'static str, what: impl Display) -> Self {
        Self::new(id, Outcome::Ok, what, "")
    }

    /// `why` it was not looked at.
    pub(crate) fn skipped(id: &'static str, why: impl Display, advice: impl Display) -> Self {
        Self::new(
            id,
            Outcome::Skipped,
            format_args!("not looked at: {why}"),
            advice,
        )
    }

    pub(crate) fn warn(id: &'static str, what: impl Display, advice: impl Display) -> Self {
        Self::new(id, Outcome::Warn, what, advice)
    }

    pub(crate) fn fail(id: &'static str, what: impl Display, advice: impl Display) -> Self {
        Self::new(id, Outcome::Fail, what, advice)
    }

    // Members' words and files' names are in it, so that it is made one line here.
    fn new(id: &'static str, result: Outcome, what: impl Display, advice: impl Display) -> Self {
        Self {
            id,
            result,
            what: one_line(&what.to_string()),
            advice: one_line(&advice.to_string()),
        }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7} {}: {}", self.result.word(), self.id, self.what)?;
        match self.advice.as_str() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}
