//! One suite that every backend passes: whatever stands behind the locks, a program sees the same.
//!
//! The cases are in `conformance/cases`, the backends in `conformance/backends`. What a backend does not
//! promise is said in its table with a reason, and told when the case is left out. There is one test for
//! each backend, since to begin a group takes seconds; it names the cases that fail.

#[path = "conformance/backends.rs"]
mod backends;
#[path = "conformance/bench.rs"]
mod bench;
#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/jobs.rs"]
mod jobs;
#[path = "conformance/killed.rs"]
mod killed;
#[cfg(any(feature = "etcd", feature = "postgresql"))]
#[path = "../agent/stores/tests/common/servers.rs"]
mod servers;

use std::collections::BTreeSet;

#[test]
fn local() {
    bench::run(&backends::local::BACKEND);
}

#[test]
fn members() {
    bench::run(&backends::members::MEMBERS);
}

#[test]
fn driven_members() {
    bench::run(&backends::members::DRIVEN);
}

#[test]
fn clients() {
    bench::run(&backends::members::CLIENTS);
}

#[cfg(feature = "etcd")]
#[test]
fn etcd() {
    bench::run(&backends::stores::ETCD);
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_through_an_agent() {
    bench::run(&backends::stores::ETCD_CLIENTS);
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_driven() {
    bench::run(&backends::stores::ETCD_DRIVEN);
}

#[cfg(feature = "postgresql")]
#[test]
fn postgresql() {
    bench::run(&backends::stores::POSTGRESQL);
}

#[cfg(feature = "postgresql")]
#[test]
fn postgresql_through_an_agent() {
    bench::run(&backends::stores::POSTGRESQL_CLIENTS);
}

/// Locks are named after their cases.
#[test]
fn no_two_cases_have_one_name() {
    let cases: Vec<_> = cases::all().collect();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
}
