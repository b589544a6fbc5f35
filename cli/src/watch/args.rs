//! The options of `--watch`, which `status` and `who` have.

use std::time::Duration;

use clap::Args;

/// How often the state is asked for, if nothing is said.
const DEFAULT: Duration = Duration::from_secs(1);
/// The shortest and the longest interval, in seconds.
const BOUNDS: [f64; 2] = [0.1, 3600.0];

// No `///`, which would be the help text of the commands.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Print the state, one line per fact, and then a line for each change, until a signal
    #[arg(long)]
    watch: bool,

    /// How often to ask for the state: 0.1 to 3600 seconds [default: 1]
    #[arg(long, value_name = "SECONDS", requires = "watch", allow_negative_numbers = true,
          value_parser = parse_interval)]
    interval: Option<Duration>,
}

impl Watch {
    /// How often the state is asked for; `None` where it is asked for once.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.watch.then(|| self.interval.unwrap_or(DEFAULT))
    }
}

/// An interval at which the state is asked for.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let [shortest, longest] = BOUNDS;
    text.parse::<f64>()
        .ok()
        // What is no number is in no range.
        .filter(|seconds| (shortest..=longest).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("an interval is {shortest} to {longest} seconds, like 2 or 0.5"))
}
