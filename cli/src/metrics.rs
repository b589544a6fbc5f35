//! `distlock metrics`, and the page that an agent serves: what it counts and measures, as Prometheus reads
//! that.

mod endpoint;
mod page;

use std::process::ExitCode;

pub(crate) use endpoint::Endpoint;

use crate::args;
use crate::exit::{self, Failure, UNAVAILABLE};
use crate::group;
use crate::way;

/// Prints what the agent has counted and measured.
///
/// # Errors
/// As for `status`, and 69 in the local group, which has no agent.
pub(crate) fn metrics(args: &args::Metrics) -> Result<ExitCode, Failure> {
    let group = group::select(&args.group, "metrics")?;
    let agent = way::open(&group)?;
    let Some(metrics) = agent.metrics()? else {
        let what = "the local group has no agent that would count anything: name an agent's socket with \
                    --socket, or leave out --local";
        return Err(Failure::new(UNAVAILABLE, what));
    };
    let text = if args.openmetrics {
        page::openmetrics(metrics)
    } else {
        page::classic(&page::openmetrics(metrics))
    };
    exit::print(text.as_bytes(), "the metrics")
}
