//! Two instances of the service, of which one makes a report at a time.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use distlock::{Agent, DistMutex};
use tempfile::TempDir;
use tokio::time::Instant;
use tower::ServiceExt;
use web_service::service;

fn two() -> (TempDir, Agent, Agent) {
    let directory = tempfile::tempdir().unwrap();
    let open = || Agent::local_in(directory.path()).unwrap();
    let (one, other) = (open(), open());
    (directory, one, other)
}

async fn post(agent: &Agent, path: &str) -> (StatusCode, String) {
    let request = Request::post(path).body(Body::empty()).unwrap();
    let answer = service(agent.clone()).oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn reports_of_two_instances_do_not_overlap() {
    let (_directory, one, other) = two();
    let begun = Instant::now();
    let (first, second) =
        tokio::join!(post(&one, "/reports/sales"), post(&other, "/reports/sales"));
    for (status, report) in [&first, &second] {
        assert_eq!(*status, StatusCode::OK, "{report}");
        assert!(report.ends_with("line 20 of 20\n"), "{report}");
    }
    assert_ne!(first.1, second.1, "each has a fence of its own");
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "one after the other"
    );
}

#[tokio::test]
async fn who_waits_too_long_is_told() {
    let (_directory, one, other) = two();
    let _held = other
        .mutex("report-sales")
        .unwrap()
        .lock_async()
        .await
        .unwrap();
    let (status, told) = post(&one, "/reports/sales").await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    let (status, told) = post(&one, &format!("/reports/{}", "x".repeat(300))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
}

#[tokio::test]
async fn a_report_stops_when_its_lock_is_lost() {
    let (_directory, one, other) = two();
    let making = tokio::spawn({
        let one = one.clone();
        async move { post(&one, "/reports/sales").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    one.close();
    let (status, told) = making.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
    assert!(begun.elapsed() < Duration::from_millis(500), "it went on");
    assert_eq!(post(&other, "/reports/sales").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let (_directory, one, other) = two();
    let limit = Duration::from_millis(300);
    assert!(
        tokio::time::timeout(limit, post(&one, "/reports/sales"))
            .await
            .is_err()
    );
    drop(
        other
            .mutex("report-sales")
            .unwrap()
            .try_lock_for(limit)
            .unwrap(),
    );
}
