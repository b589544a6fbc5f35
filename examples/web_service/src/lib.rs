//! A web service of which several instances run, on one host or on many: of all of them one at a time makes a
//! report, and the instance that loses the lock stops in the midst of it.
//!
//! `POST /reports/sales` waits for the lock `report-sales` for five seconds, makes the report, and answers with it.
//! The future of a handler is dropped when its client goes away: then the request for the lock is withdrawn, or the
//! lock given back.

use std::fmt::Write;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use distlock::{Agent, DistMutex, Fence, TimedLockError};

const PATIENCE: Duration = Duration::from_secs(5);
const LINES: u32 = 20;
/// How long one line takes.
const LINE: Duration = Duration::from_millis(50);

/// A refusal: the status, and what is wrong.
type Refusal = (StatusCode, String);

/// The service, whose locks `agent` gives.
pub fn service(agent: Agent) -> Router {
    Router::new()
        .route("/reports/{name}", post(make_report))
        .with_state(agent)
}

async fn make_report(
    State(agent): State<Agent>,
    Path(name): Path<String>,
) -> Result<String, Refusal> {
    let lock = agent
        .mutex(format!("report-{name}"))
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let guard = lock.lock_async_for(PATIENCE).await.map_err(|error| {
        let status = match error {
            TimedLockError::TimedOut => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, error.to_string())
    })?;
    // Dropped in the midst of it, should the lease end or the lock be lost: another instance may have begun.
    let report = guard.hold(write_report(&name, guard.fence())).await;
    let report = report.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    // Whether it was held to the end.
    match guard.unlock_async().await {
        Ok(()) => Ok(report),
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// The job. What it wrote elsewhere it would write with the fence, so that a store can refuse what comes late.
async fn write_report(name: &str, fence: Option<Fence>) -> String {
    let fence = fence.map_or_else(|| "none".to_owned(), |fence| fence.to_string());
    let mut report = format!("report of {name}, fence {fence}\n");
    for line in 1..=LINES {
        tokio::time::sleep(LINE).await;
        let _ = writeln!(report, "line {line} of {LINES}");
    }
    report
}
