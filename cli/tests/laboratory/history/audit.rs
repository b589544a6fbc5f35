//! Whether the audit logs of the hosts' agents tell what the critical sections logged.
//!
//! Every entry must be in the log of its host once, noted before it was entered, with its fence and how it was
//! entered; a grant has one end, and none is told of that nobody had. An agent that is killed may not have
//! written what happened just before: what is missing is then later than all that this agent wrote.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::{History, Mode, Rules, parse_mode};

/// What the judge found where nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Audited {
    /// Entries that are in a log.
    pub(crate) entries: usize,
    /// Entries that an agent had no time to write, as it was killed.
    pub(crate) unwritten: usize,
    /// Agents that were killed.
    pub(crate) killed: usize,
    /// All lines.
    pub(crate) lines: usize,
}

/// What is read of a line.
#[derive(Debug, Deserialize)]
struct Line {
    boot_ns: u64,
    event: String,
    lock: Option<String>,
    mode: Option<String>,
    fence: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    host: u16,
    at: u64,
    mode: Mode,
}

/// From the first to the last line of one agent.
#[derive(Clone, Copy, Debug)]
struct Agent {
    first: u64,
    last: u64,
    /// It ended in order.
    has_end: bool,
}

/// Whoever was granted what, by lock and fence.
type Grants = HashMap<(String, u64), Grant>;

impl History {
    /// Compares with the logs of the hosts.
    ///
    /// # Errors
    /// The first difference, in words.
    pub(crate) fn judge_audits(
        &self,
        logs: &BTreeMap<u16, String>,
        rules: &Rules,
    ) -> Result<Audited, String> {
        let mut audited = Audited::default();
        let mut grants = Grants::new();
        let mut agents = BTreeMap::new();
        for (&host, log) in logs {
            let of_host = read(host, log, rules, &mut grants)?;
            audited.lines += log.lines().count();
            audited.killed += of_host.iter().filter(|agent| !agent.has_end).count();
            agents.insert(host, of_host);
        }
        for stay in &self.stays {
            let (host, _) = stay.who.split_once('.').unwrap_or_default();
            let host: u16 = host
                .parse()
                .map_err(|_| format!("of no host: {}", stay.line))?;
            match grants.get(&(stay.lock.clone(), stay.fence)) {
                Some(grant) => {
                    let is_alike = (grant.host, grant.mode) == (host, stay.mode);
                    if !is_alike || grant.at > stay.entered {
                        return Err(format!("granted otherwise ({grant:?}): {}", stay.line));
                    }
                    audited.entries += 1;
                }
                None => {
                    let agents = agents.get(&host).map_or(&[][..], |agents| agents);
                    if !may_be_unwritten(stay.asked, stay.entered, agents) {
                        return Err(format!("not in the log of host {host}: {}", stay.line));
                    }
                    audited.unwritten += 1;
                }
            }
        }
        Ok(audited)
    }
}

/// Reads what the agents of `host` wrote, one after the other.
fn read(host: u16, log: &str, rules: &Rules, grants: &mut Grants) -> Result<Vec<Agent>, String> {
    let mut agents: Vec<Agent> = Vec::new();
    // Those that have no end yet.
    let mut open: HashMap<(String, u64), usize> = HashMap::new();
    let mut highest: HashMap<String, u64> = HashMap::new();
    for (index, text) in log.lines().enumerate() {
        let wrong = |what: &str| format!("{what}: line {} of host {host}: {text}", index + 1);
        let line: Line = serde_json::from_str(text).map_err(|_| wrong("no line"))?;
        if line.event == "start" {
            let is_over = agents.last().is_none_or(|agent| agent.has_end);
            if is_over && !open.is_empty() {
                return Err(wrong("a grant of the agent before has no end"));
            }
            open.clear();
            agents.push(Agent {
                first: line.boot_ns,
                last: line.boot_ns,
                has_end: false,
            });
        }
        let agent = agents.last_mut().ok_or_else(|| wrong("before any start"))?;
        agent.last = agent.last.max(line.boot_ns);
        agent.has_end = line.event == "end";
        let key = line.lock.zip(line.fence);
        match (line.event.as_str(), key) {
            ("grant", Some(key)) => {
                let mode = line.mode.as_deref().and_then(parse_mode);
                let mode = mode.ok_or_else(|| wrong("no mode"))?;
                if mode == Mode::Exclusive && rules.permits.get(&key.0) == Some(&1) {
                    let before = highest.insert(key.0.clone(), key.1);
                    if before.is_some_and(|before| before > key.1) {
                        return Err(wrong("the fence fell"));
                    }
                }
                open.insert(key.clone(), index);
                let at = line.boot_ns;
                if grants.insert(key, Grant { host, at, mode }).is_some() {
                    return Err(wrong("granted twice"));
                }
            }
            ("release" | "abandon" | "loss", Some(key)) if open.remove(&key).is_none() => {
                return Err(wrong("the end of what was not granted, or has ended"));
            }
            ("grant" | "release" | "abandon" | "loss", None) => return Err(wrong("no fence")),
            ("gap", _) => return Err(wrong("there was room for all")),
            _ => {}
        }
    }
    Ok(agents)
}

/// Whether an agent that was killed can have granted, after its last line, what was asked for and entered then.
fn may_be_unwritten(asked: u64, entered: u64, agents: &[Agent]) -> bool {
    let next = agents.iter().skip(1).map(|next| next.first);
    let ends = agents.iter().zip(next.chain([u64::MAX]));
    // A caller that waited may have asked an agent before.
    let mut killed = ends.filter(|(agent, _)| !agent.has_end);
    killed.any(|(agent, next)| agent.last <= entered && asked.min(entered) < next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `host` 1 entered `x` from 100 to 200 with fence 7, and from 300 with 8.
    const ENTRIES: &str = "enter 1.a.1 1 x exclusive 7 90 100\nleave 1.a.1 1 200\n\
                           enter 1.a.1 2 x exclusive 8 290 300\nleave 1.a.1 2 400\n";
    const START: &str = "50 start";
    const WHOLE: [&str; 6] = [
        START,
        "95 grant exclusive 7",
        "210 release exclusive 7",
        "295 grant exclusive 8",
        "410 release exclusive 8",
        "500 end",
    ];

    fn line(short: &&str) -> String {
        let words: Vec<_> = short.split(' ').collect();
        let entry = match words[2..] {
            [mode, fence] => format!(r#","lock":"x","mode":"{mode}","fence":{fence}"#),
            _ => String::new(),
        };
        format!(
            r#"{{"boot_ns":{},"event":"{}"{entry}}}"#,
            words[0], words[1]
        )
    }

    fn judge(lines: &[&str]) -> Result<Audited, String> {
        let mut history = History::default();
        history.add("a", ENTRIES).unwrap();
        let rules = Rules {
            permits: [("x".to_owned(), 1)].into(),
            long_stop_ns: 1_000,
        };
        let lines: Vec<_> = lines.iter().map(line).collect();
        history.judge_audits(&[(1, lines.join("\n"))].into(), &rules)
    }

    fn counts(lines: &[&str]) -> (usize, usize, usize) {
        let audited = judge(lines).unwrap();
        (audited.entries, audited.unwritten, audited.killed)
    }

    #[track_caller]
    fn assert_wrong(lines: &[&str], why: &str) {
        let error = judge(lines).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn a_log_that_has_everything_is_right() {
        assert_eq!(counts(&WHOLE), (2, 0, 0));
        // A grant that nobody came to know of is no entry.
        let more = [
            &WHOLE[..5],
            &["420 grant exclusive 9", "421 loss exclusive 9", "500 end"],
        ];
        assert_eq!(counts(&more.concat()), (2, 0, 0));
    }

    #[test]
    fn what_is_missing_or_otherwise_is_found() {
        let without = |index: usize| [&WHOLE[..index], &WHOLE[index + 1..]].concat();
        let other = |index: usize, line| [&WHOLE[..index], &[line], &WHOLE[index + 1..]].concat();
        assert_wrong(
            &[&WHOLE[..1], &WHOLE[3..]].concat(),
            "not in the log of host 1",
        );
        assert_wrong(&without(0), "before any start");
        assert_wrong(&without(1), "the end of what was not granted");
        assert_wrong(
            &[&without(4), &[START][..]].concat(),
            "a grant of the agent before has no end",
        );
        assert_wrong(&other(3, "295 grant exclusive 7"), "granted twice");
        assert_wrong(&other(3, "295 grant exclusive 6"), "the fence fell");
        assert_wrong(&other(3, "295 grant shared 8"), "granted otherwise");
        assert_wrong(&other(3, "305 grant exclusive 8"), "granted otherwise");
        assert_wrong(&other(2, "200 gap"), "there was room for all");
    }

    #[test]
    fn an_agent_that_is_killed_may_lack_what_came_last_and_nothing_else() {
        assert_eq!(counts(&WHOLE[..3]), (1, 1, 1));
        let restarted = [&WHOLE[..3], &["450 start", "500 end"]].concat();
        assert_eq!(counts(&restarted), (1, 1, 1));
        let later = [&WHOLE[..3], &["301 view"]].concat();
        assert_wrong(&later, "not in the log of host 1");
        // The next agent was there already when it was asked for.
        let restarted = [&WHOLE[..3], &["250 start", "500 end"]].concat();
        assert_wrong(&restarted, "not in the log of host 1");
    }
}
