//! Why a client is not served any more, and what the status counts that as.

use std::io;

use crate::runtime::clients::limits::{FEW_DESCRIPTORS, TOO_MUCH};

/// Why a client is not served any more.
#[derive(Debug, thiserror::Error)]
pub(in crate::runtime::clients) enum Ended {
    #[error("its process has ended")]
    Process,
    #[error("its stream has ended: {0}")]
    Stream(#[from] io::Error),
    #[error("few descriptors are left, and it sent one: raise the limit of open files, ulimit -n")]
    Descriptors,
    #[error("it does not read its answers")]
    Unread,
    #[error("all clients together take too much memory, and it the most")]
    TooMuch,
    #[error("it cannot be understood: {0}")]
    Malformed(io::Error),
    #[error("{0}")]
    Breach(&'static str),
}

/// Whether the client has closed its stream, as the kernel says.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Nobody is asked for descriptors.
pub(super) const UNWANTED: Ended = Ended::Breach("it sent descriptors that nobody wants");

impl Ended {
    /// What the status counts it as; `None` if the client ended it in order.
    pub(in crate::runtime::clients) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Process | Self::Stream(_) => None,
            Self::Descriptors => Some(FEW_DESCRIPTORS),
            Self::Unread => Some("unread"),
            Self::TooMuch => Some(TOO_MUCH),
            Self::Malformed(_) | Self::Breach(_) => Some("malformed"),
        }
    }
}
