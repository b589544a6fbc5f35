//! What etcd's errors mean for an operation.
//!
//! The list is that of `api/v3rpc/rpctypes/error.go` (etcd 3.4 to 3.6). What `Refused` and `NotDone` rest on:
//!
//! - `EtcdServer.processInternalRaftRequestOnce` (`etcdserver/v3_server.go`) returns *too many requests*,
//!   *invalid auth token*, *user name is empty* and *request is too large* before anything is proposed;
//!   gRPC's own limit of a message's size is looked at before that.
//! - *Permission denied*, *revision of auth store is old* and *user name not found* come from the applier
//!   (`apply_auth.go`) too: the entry was committed, and every member has refused it.
//!
//! *Database space exceeded* is said before the proposal (`v3rpc/quota.go`), by the applier that has refused it
//! (`applierV3Capped`), and also by one that has *done* it (`quotaApplierV3`: the transaction is applied, then
//! the error is returned). In each case nothing is under way any more, so a read tells.
//!
//! All else may still be done: when *request timed out* or *leader changed* is said, the proposal is under way
//! still; and what a proxy says, or what is not known here, proves nothing.

use super::json::{Failure, parse};

/// gRPC's numbers.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
pub(super) const UNAUTHENTICATED: u32 = 16;

/// What an error means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It was not done, and would be refused again.
    Refused(String),
    /// It was done or refused, and a read tells which; this is why it would have been refused.
    Full(String),
    /// It was not done, for want of a token that counts.
    SignIn,
    /// The user's name or the password is wrong.
    WrongPassword,
    /// There are no users, or they are switched off.
    NoUsers,
    /// There is no such path.
    NoPath,
    /// It may have been done, or will be; this member had better not be asked again.
    Unknown(String),
    /// It was not done now, as etcd has too much to do.
    Busy,
}

/// What a reply of that status with that body means; it is not 200.
pub(super) fn meaning(status: u16, body: &[u8]) -> Meaning {
    let failure: Failure = parse(body).unwrap_or_default();
    let message = failure.message.as_str();
    let grpc = "grpc: received message larger than max";
    match (failure.code, message) {
        (PERMISSION_DENIED, "etcdserver: permission denied") => {
            Meaning::Refused("etcd denies its user the permission".to_owned())
        }
        (INVALID_ARGUMENT, "etcdserver: request is too large") => Meaning::Refused(
            "it is larger than etcd takes (see its option --max-request-bytes)".to_owned(),
        ),
        (RESOURCE_EXHAUSTED, message) if message.starts_with(grpc) => Meaning::Refused(
            "it is larger than etcd takes (see its option --max-request-bytes)".to_owned(),
        ),
        (RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded") => Meaning::Full(
            "etcd's database is full: compact and defragment it, or raise its option \
             --quota-backend-bytes, then disarm the alarm"
                .to_owned(),
        ),
        (UNAUTHENTICATED, "etcdserver: invalid auth token")
        | (INVALID_ARGUMENT, "etcdserver: user name is empty")
        | (INVALID_ARGUMENT, "etcdserver: revision of auth store is old")
        | (FAILED_PRECONDITION, "etcdserver: user name not found") => Meaning::SignIn,
        (INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password") => {
            Meaning::WrongPassword
        }
        (FAILED_PRECONDITION, "etcdserver: authentication is not enabled") => Meaning::NoUsers,
        (RESOURCE_EXHAUSTED, "etcdserver: too many requests") => Meaning::Busy,
        _ if status == 404 && failure.code == 0 => Meaning::NoPath,
        _ => Meaning::Unknown(words(status, &failure, body)),
    }
}

/// Says what a reply says that was not expected.
fn words(status: u16, failure: &Failure, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let said = if failure.message.is_empty() {
        body.trim()
    } else {
        &failure.message
    };
    if said.starts_with("CommonName of client") {
        return "etcd's gateway refuses a certificate with a common name while etcd's users are switched on \
                (etcd-io/etcd#17025): give the agent a certificate without one, and a user with a password"
            .to_owned();
    }
    if status == 421 {
        return "etcd does not answer to this name of its host: add the name to its option --host-whitelist"
            .to_owned();
    }
    if said.contains("rpc not supported for learner") {
        return "that member is a learner, which serves no operations".to_owned();
    }
    format!("etcd says: {} (HTTP {status})", shown(said))
}

/// What a server said, cut short, without what would act on a terminal.
pub(super) fn shown(said: &str) -> String {
    let plain = said.chars().filter(|character| !character.is_control());
    plain.take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: u32, message: &str) -> Meaning {
        let body = serde_json::json!({ "error": message, "message": message, "code": code });
        meaning(status, body.to_string().as_bytes())
    }

    #[test]
    fn only_what_was_never_done_is_refused() {
        let denied = of(403, 7, "etcdserver: permission denied");
        assert!(matches!(denied, Meaning::Refused(_)));
        let full = of(429, 8, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, Meaning::Full(_)));
        for (code, message) in [
            (14, "etcdserver: request timed out"),
            (14, "etcdserver: leader changed"),
            (14, "etcdserver: server stopped"),
            (
                14,
                "etcdserver: request timed out, possibly due to connection lost",
            ),
            (15, "etcdserver: corrupt cluster"),
            (2, "etcdserver: permission denied"),
            (7, "denied by somebody else"),
            (13, "transport is closing"),
            (4, "context deadline exceeded"),
        ] {
            let meaning = of(503, code, message);
            assert!(
                matches!(meaning, Meaning::Unknown(_)),
                "{message}: {meaning:?}"
            );
        }
        for body in [&b"<html>502 Bad Gateway"[..], b"", b"{", b"\xff", b"[]"] {
            assert!(matches!(meaning(502, body), Meaning::Unknown(_)));
        }
        assert_eq!(meaning(404, b"404 page not found\n"), Meaning::NoPath);
        assert_eq!(
            of(401, 16, "etcdserver: invalid auth token"),
            Meaning::SignIn
        );
    }

    #[test]
    fn what_is_shown_is_short_and_plain() {
        let said = format!("\u{1b}[31m{}", "x".repeat(1000));
        assert_eq!(shown(&said).len(), 200);
        assert!(shown(&said).starts_with("[31mx"));
    }
}
