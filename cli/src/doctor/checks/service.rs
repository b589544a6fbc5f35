//! The agent, and the programs that use it.

use crate::doctor::facts::{Answer, Facts, File};
use crate::doctor::finding::Finding;
use crate::exit::quoted;

pub(super) fn agent(facts: &Facts) -> Finding {
    const ID: &str = "agent";
    let socket = quoted(&facts.agent.socket);
    let pid = facts.process.map(|process| process.pid);
    match &facts.agent.answer {
        Answer::Status { status, .. } => {
            let (member, group) = (status.member, &status.group);
            Finding::ok(
                ID,
                format_args!("member {member} of group {group} answers at {socket}"),
            )
        }
        Answer::Absent => match pid {
            Some(pid) => Finding::warn(
                ID,
                format_args!("process {pid} runs as this member, and there is no socket {socket}"),
                "name its socket with --socket; a program that is a member itself has none, and \
                 what only an agent tells is not looked at",
            ),
            None => Finding::warn(
                ID,
                format_args!("no agent runs: there is no socket {socket}"),
                "start it, with systemctl start distlock or distlock agent, or name its socket with \
                 --socket",
            ),
        },
        Answer::Unserved => {
            let what = format!("no agent serves the socket {socket}");
            let advice = match pid {
                Some(pid) => format!(
                    "process {pid} runs as this member: name its socket with --socket, or end it and \
                     start the agent again"
                ),
                None => {
                    "start the agent, with systemctl start distlock or distlock agent, and see \
                         in its log why it ended"
                        .to_owned()
                }
            };
            Finding::fail(ID, what, advice)
        }
        Answer::Silent(patience) => {
            let what = format!("the agent at {socket} has not answered in {patience:?}");
            match facts.process {
                Some(process) if process.is_stopped => Finding::fail(
                    ID,
                    format_args!("{what}: its process {} is stopped", process.pid),
                    format_args!(
                        "have it go on with kill -CONT {}; what it held may be lost",
                        process.pid
                    ),
                ),
                _ => Finding::fail(
                    ID,
                    what,
                    "see whether its process is stopped or waits for something (ps -o stat,wchan), \
                     and start it again if that lasts",
                ),
            }
        }
        Answer::Forbidden(why) => Finding::warn(
            ID,
            why,
            "until this command may ask the agent, most of its checks are left out",
        ),
        Answer::Refused(why) => Finding::fail(ID, why, "see what its log says"),
        Answer::Other { group, member } => Finding::warn(
            ID,
            format_args!(
                "at {socket} answers member {member} of group {group}, and the configuration is \
                 another member's"
            ),
            "name the socket of this member's agent with --socket, or the configuration and the \
             number of that one with --config and --id",
        ),
    }
}

pub(super) fn clients(facts: &Facts) -> Finding {
    const ID: &str = "clients";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let Some(clients) = &status.clients else {
        return Finding::ok(ID, "this member serves no other programs");
    };
    if clients.waits_for_former {
        return Finding::fail(
            ID,
            "commands that the agent let in before it was restarted still run, and it lets no \
             program in before they have ended",
            "end those commands, which the agent's log names",
        );
    }
    let connected = clients.connected;
    if clients.dropped.is_empty() {
        return Finding::ok(
            ID,
            format_args!("{connected} connected, with this command; none turned away"),
        );
    }
    let reasons = clients.dropped.iter();
    let reasons: Vec<_> = reasons
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    let raise = match clients.dropped.contains_key("few-descriptors") {
        true => "raise the agent's limit of open files (LimitNOFILE=, ulimit -Hn); ",
        false => "",
    };
    Finding::warn(
        ID,
        format_args!(
            "programs were turned away, cut off, or not told something since the agent's start: {}",
            reasons.join(", ")
        ),
        format_args!("{raise}distlock(1) says under status what each reason means"),
    )
}

/// Whether there is anything of a configured group on this host.
pub(super) fn nothing_is_found(facts: &Facts) -> bool {
    matches!(facts.file, File::Unknown) && matches!(facts.agent.answer, Answer::Absent)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distlock::status::{ClientsStatus, Status};

    use super::*;
    use crate::doctor::facts::Process;
    use crate::doctor::finding::Outcome;

    fn answered(answer: Answer) -> Facts {
        let mut facts = Facts::default();
        facts.agent.answer = answer;
        facts
    }

    fn with_clients(clients: ClientsStatus) -> Finding {
        let status = Status {
            clients: Some(clients),
            ..Status::default()
        };
        clients_of(status)
    }

    fn clients_of(status: Status) -> Finding {
        clients(&answered(Answer::Status {
            status: Box::new(status),
            lease: None,
        }))
    }

    #[test]
    fn a_stopped_process_is_named() {
        let mut facts = answered(Answer::Silent(Duration::from_secs(5)));
        assert_eq!(agent(&facts).result, Outcome::Fail);
        assert!(!agent(&facts).advice.contains("CONT"));
        let pid = 4_711;
        let is_stopped = true;
        facts.process = Some(Process { pid, is_stopped });
        let told = agent(&facts);
        assert_eq!(told.result, Outcome::Fail);
        assert!(told.what.contains("process 4711 is stopped"), "{told}");
        assert!(told.advice.contains("kill -CONT 4711"), "{told}");
    }

    #[test]
    fn who_may_not_ask_is_warned_and_who_serves_nobody_fails() {
        let forbidden = agent(&answered(Answer::Forbidden("no".to_owned())));
        assert_eq!(forbidden.result, Outcome::Warn);
        assert_eq!(agent(&answered(Answer::Absent)).result, Outcome::Warn);
        assert_eq!(agent(&answered(Answer::Unserved)).result, Outcome::Fail);
        let old = agent(&answered(Answer::Refused("another build".to_owned())));
        assert_eq!(old.result, Outcome::Fail);
        let group = "shop".to_owned();
        let other = agent(&answered(Answer::Other { group, member: 2 }));
        assert_eq!(other.result, Outcome::Warn);
        assert!(other.what.contains("member 2 of group shop"), "{other}");
    }

    #[test]
    fn clients_that_were_turned_away_are_counted() {
        let told = with_clients(ClientsStatus::default());
        assert_eq!(told.result, Outcome::Ok);
        let told = with_clients(ClientsStatus {
            dropped: [("other-user".to_owned(), 3)].into(),
            ..ClientsStatus::default()
        });
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("other-user 3"), "{told}");
        assert!(!told.advice.contains("LimitNOFILE"), "{told}");
        let told = with_clients(ClientsStatus {
            dropped: [("few-descriptors".to_owned(), 1)].into(),
            ..ClientsStatus::default()
        });
        assert!(told.advice.contains("LimitNOFILE"), "{told}");
        assert_eq!(clients_of(Status::default()).result, Outcome::Ok);
    }

    #[test]
    fn commands_of_a_former_agent_keep_all_out() {
        let told = with_clients(ClientsStatus {
            waits_for_former: true,
            ..ClientsStatus::default()
        });
        assert_eq!(told.result, Outcome::Fail);
    }
}
