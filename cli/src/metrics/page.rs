//! Metrics as text: of OpenMetrics 1.0, and as Prometheus had it before that, which most other tools read.

use std::fmt;
use std::time::Duration;

use distlock::metrics::{Histogram, LockMetrics, Metrics};
use distlock::status::MemberState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// As OpenMetrics.
pub(super) fn openmetrics(metrics: Metrics) -> String {
    let mut registry = Registry::with_prefix("distlock");
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a string takes everything");
    page
}

/// The same in the text format of before, in which a counter's name ends with `_total` also where it is
/// described, and units are not told.
pub(super) fn classic(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    let mut lines = openmetrics.lines().peekable();
    while let Some(line) = lines.next() {
        let describes = |what: &str| line.strip_prefix(what)?.split_once(' ');
        let is_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
        match (describes("# HELP "), describes("# TYPE ")) {
            _ if line == "# EOF" || line.starts_with("# UNIT ") => continue,
            (Some((name, help)), _) if lines.peek().is_some_and(|next| is_counter(next)) => {
                page += &format!("# HELP {name}_total {help}");
            }
            (_, Some((name, "counter"))) => page += &format!("# TYPE {name}_total counter"),
            _ => page += line,
        }
        page.push('\n');
    }
    page
}

/// What was asked for once, as its metrics.
#[derive(Debug)]
struct Snapshot(Metrics);

type Labels = Vec<(&'static str, String)>;

/// What is described, one after the other.
struct Page<'a>(DescriptorEncoder<'a>);

/// Under these labels, without braces if there are none.
fn put(
    family: &mut MetricEncoder<'_>,
    labels: &Labels,
    put: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match labels.as_slice() {
        [] => put(family),
        _ => put(&mut family.encode_family(labels)?),
    }
}

impl Page<'_> {
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, value) in values {
            put(&mut family, &labels, |one| one.encode_gauge(&value))?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.gauges(name, help, None, [(Labels::new(), value)])
    }

    fn seconds(&mut self, name: &str, help: &str, value: Duration) -> fmt::Result {
        let value = value.as_secs_f64();
        self.gauges(name, help, Some(&Unit::Seconds), [(Labels::new(), value)])
    }

    /// `name` is without `_total`.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            put(&mut family, &labels, |one| {
                one.encode_counter::<NoLabelSet, u64, u64>(&value, None)
            })?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(Labels::new(), value)])
    }

    /// In seconds.
    fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, &'h Histogram)>,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        let unit = Some(&Unit::Seconds);
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, histogram) in values {
            let beyond = f64::INFINITY;
            let buckets: Vec<_> = histogram
                .buckets()
                .map(|(bound, count)| (bound.map_or(beyond, |bound| bound.as_secs_f64()), count))
                .collect();
            let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
            put(&mut family, &labels, |one| {
                one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            })?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        self.histograms(name, help, [(Labels::new(), histogram)])
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.put_group(&mut page)?;
        self.put_locks(&mut page)?;
        self.put_agent(&mut page)
    }
}

fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

/// The word that JSON has for it, too.
fn state(state: MemberState) -> String {
    let word = serde_json::to_value(state).ok();
    let word = word.as_ref().and_then(|word| word.as_str());
    word.unwrap_or_default().to_owned()
}

impl Snapshot {
    fn put_group(&self, page: &mut Page<'_>) -> fmt::Result {
        let its = &self.0;
        let version = label("version", env!("CARGO_PKG_VERSION"));
        let build = [(version, 1.0)];
        page.gauges("build_info", "The program", None, build)?;
        let member = vec![
            ("group", its.group.clone()),
            ("member", its.member.to_string()),
        ];
        let help = "Which member of which group the agent is";
        page.gauges("agent_info", help, None, [(member, 1.0)])?;
        page.gauge(
            "epoch",
            "The epoch of the view in force, 0 if no view is in force",
            f64::from(its.epoch),
        )?;
        page.gauge(
            "quorum",
            "Whether this member can be granted locks",
            f64::from(u8::from(its.has_quorum)),
        )?;
        let states = its.members.iter();
        page.gauges(
            "members",
            "Members by their states, as this one sees them",
            None,
            states.map(|(its, count)| (label("state", state(*its)), *count as f64)),
        )?;
        let votes = [("yes", its.voting), ("no", its.not_voting)];
        page.gauges(
            "voters",
            "Voters that vote, and voters that do not",
            None,
            votes.map(|(votes, count)| (label("votes", votes), count as f64)),
        )?;
        page.counters(
            "view_changes",
            "Views that came into force, by whom they have and the view before had not, or have not",
            named("cause", &its.view_changes),
        )?;
        page.histogram(
            "view_pause",
            "How long no request was served between two views",
            &its.view_pause,
        )?;
        page.seconds("lease", "How long a lease lasts", its.lease)?;
        if let Some(remaining) = its.lease_remaining {
            page.seconds(
                "lease_remaining",
                "How long this member's lease still lasts",
                remaining,
            )?;
        }
        page.histogram(
            "lease_margin",
            "How much was left of a lease when it was renewed",
            &its.lease_margin,
        )?;
        let rates = its.clock_rates.iter();
        page.gauges(
            "clock_rate_difference",
            "By what share a member's clock is proven to gain on this one's, beyond what leases allow for",
            None,
            rates.map(|(id, ppm)| (label("member", id.to_string()), *ppm as f64 / 1e6)),
        )
    }

    /// All locks, by what they are called here.
    fn locks(&self) -> impl Iterator<Item = (Labels, &LockMetrics)> + Clone {
        let listed = self.0.locks.iter();
        let listed = listed.map(|(name, its)| (name.as_str(), its));
        let all = listed.chain([(Metrics::OTHER, &self.0.other_locks)]);
        all.map(|(name, its)| (label("lock", name), its))
    }

    fn put_locks(&self, page: &mut Page<'_>) -> fmt::Result {
        let locks = self.locks();
        page.gauges(
            "holders",
            "Callers of this agent that are inside",
            None,
            locks.clone().map(|(lock, its)| (lock, its.holders as f64)),
        )?;
        page.gauges(
            "waiters",
            "Callers of this agent that wait",
            None,
            locks.clone().map(|(lock, its)| (lock, its.waiters as f64)),
        )?;
        page.gauges(
            "oldest_wait",
            "For how long the caller has waited that has waited longest",
            Some(&Unit::Seconds),
            locks
                .clone()
                .map(|(lock, its)| (lock, its.oldest_wait.as_secs_f64())),
        )?;
        page.counters(
            "grants",
            "Grants, with the entries by loan, of which the agent is not asked",
            locks.clone().flat_map(|(lock, its)| {
                let modes = [("exclusive", its.exclusive), ("shared", its.shared)];
                modes.map(|(mode, count)| {
                    let mut labels = lock.clone();
                    labels.push(("mode", mode.to_owned()));
                    (labels, count)
                })
            }),
        )?;
        page.counters(
            "loan_entries",
            "Entries by loan: neither their waits nor, as a rule, their times inside are measured",
            locks.clone().map(|(lock, its)| (lock, its.by_loan)),
        )?;
        page.counters(
            "refusals",
            "Requests that were refused or given up",
            locks.clone().flat_map(|(lock, its)| {
                its.refusals.iter().map(move |(why, count)| {
                    let mut labels = lock.clone();
                    labels.push(("reason", why.clone()));
                    (labels, *count)
                })
            }),
        )?;
        page.counters(
            "abandoned",
            "Grants after a holder that had ended inside",
            locks.clone().map(|(lock, its)| (lock, its.abandoned)),
        )?;
        page.histograms(
            "wait",
            "How long requests waited that were granted",
            locks.clone().map(|(lock, its)| (lock, &its.wait)),
        )?;
        page.histograms(
            "hold",
            "How long callers were inside of which the agent knew",
            locks.map(|(lock, its)| (lock, &its.hold)),
        )
    }

    fn put_agent(&self, page: &mut Page<'_>) -> fmt::Result {
        let its = &self.0;
        page.counters(
            "losses",
            "Grants that were void before they were released",
            named("reason", &its.losses),
        )?;
        if let Some(clients) = its.clients {
            let help = "Programs that are connected to this agent";
            page.gauge("clients", help, clients as f64)?;
        }
        page.counters(
            "clients_refused",
            "Programs that were turned away, cut off, or refused something",
            named("reason", &its.clients_refused),
        )?;
        page.counter("datagrams_sent", "Datagrams sent", its.datagrams_sent)?;
        page.counter(
            "datagrams_received",
            "Datagrams taken",
            its.datagrams_received,
        )?;
        page.counters(
            "datagrams_dropped",
            "Datagrams, and messages in them, that were dropped",
            named("reason", &its.datagrams_dropped),
        )?;
        page.counter(
            "handshakes",
            "Handshakes by which members prove that their datagrams are new",
            its.handshakes,
        )?;
        if let Some(lost) = its.audit_lost {
            let help = "Lines that the audit log lacks, as there was no room for them";
            page.counter("audit_dropped", help, lost)?;
        }
        page.histogram(
            "state_write",
            "How long it took to have the member's state on disk",
            &its.state_write,
        )?;
        page.histogram(
            "loop_stall",
            "How late the agent's thread was",
            &its.loop_stall,
        )
    }
}

fn named<'a>(
    label_name: &'static str,
    counts: impl IntoIterator<Item = (&'a String, &'a u64)>,
) -> impl Iterator<Item = (Labels, u64)> {
    let counts = counts.into_iter();
    counts.map(move |(word, count)| (label(label_name, word), *count))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sample() -> Metrics {
        let count = |word: &str| BTreeMap::from([(word.to_owned(), 3)]);
        let mut metrics = Metrics {
            group: "shop".to_owned(),
            ..Metrics::default()
        };
        metrics.members.insert(MemberState::Alive, 2);
        metrics.view_changes = count("joined");
        metrics.clock_rates.insert(2, -500_000);
        metrics.lease_remaining = Some(Duration::from_millis(1_500));
        let printer = metrics.locks.entry("a \"b\"\n".to_owned()).or_default();
        printer.refusals = count("busy");
        metrics
    }

    #[test]
    fn names_of_counters_end_alike_in_the_older_format() {
        let page = openmetrics(sample());
        assert!(page.ends_with("# EOF\n"));
        assert!(page.contains("# TYPE distlock_view_changes counter\n"));
        let page = classic(&page);
        let has = |line: &str| assert!(page.lines().any(|its| its == line), "{line}\n{page}");
        has("# TYPE distlock_view_changes_total counter");
        has("distlock_view_changes_total{cause=\"joined\"} 3");
        has("# TYPE distlock_lease_remaining_seconds gauge");
        has("distlock_lease_remaining_seconds 1.5");
        has("distlock_members{state=\"alive\"} 2.0");
        has("distlock_clock_rate_difference{member=\"2\"} -0.5");
        has("distlock_refusals_total{lock=\"a \\\"b\\\"\\n\",reason=\"busy\"} 3");
        has("distlock_wait_seconds_bucket{le=\"+Inf\",lock=\"other\"} 0");
        assert!(!page.contains("# EOF") && !page.contains("# UNIT"));
        // Every line is described before it comes, and each is there once.
        let mut described = String::new();
        let mut seen = std::collections::BTreeSet::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                described = rest.split(' ').next().unwrap_or_default().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&described), "{line} is not {described}");
                assert!(seen.insert(line.rsplit_once(' ').map(|(series, _)| series.to_owned())));
            }
        }
    }
}
