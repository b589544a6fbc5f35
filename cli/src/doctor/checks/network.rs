//! This member's address, the ways to the others, and what the kernel drops.

use std::net::SocketAddr;

use distlock_agent::runtime::DATAGRAM;

use super::named;
use crate::doctor::facts::{AddressUse, Answer, Facts, Route};
use crate::doctor::finding::Finding;

pub(super) fn address(facts: &Facts) -> Finding {
    const ID: &str = "address";
    let Some((me, members)) = facts.members() else {
        return facts.without_node(ID);
    };
    let own = members
        .get(&me)
        .map(ToString::to_string)
        .unwrap_or_default();
    if facts.status().is_some() {
        return Finding::ok(ID, format_args!("the agent has {own}"));
    }
    match (&facts.address, facts.process) {
        (None, _) => facts.without_node(ID),
        (Some(AddressUse::Free), _) => Finding::ok(ID, format_args!("{own} is free")),
        (Some(AddressUse::NotHere(why)), _) => Finding::fail(
            ID,
            format_args!("this member cannot have {own}: {why}"),
            "correct the address in the files of all members, or give it to this host",
        ),
        // Whose socket it is may be told to its own user only.
        (Some(AddressUse::Taken(pid)), Some(member)) if pid.is_none_or(|pid| pid == member.pid) => {
            let pid = member.pid;
            Finding::ok(
                ID,
                format_args!("process {pid} has {own}, and is this member"),
            )
        }
        // It may be that agent which did not answer.
        (Some(AddressUse::Taken(None)), None)
            if !matches!(facts.agent.answer, Answer::Absent | Answer::Unserved) =>
        {
            Finding::skipped(
                ID,
                format_args!("a process has {own} that this user may not know"),
                "run this command as root",
            )
        }
        (Some(AddressUse::Taken(pid)), _) => {
            let whose = match pid {
                Some(pid) => format!("process {pid} has it"),
                None => "another process has it".to_owned(),
            };
            Finding::fail(
                ID,
                format_args!("{own} is taken: {whose}, and is not known to be this member"),
                "end that process, or give this member another address in the files of all members",
            )
        }
    }
}

pub(super) fn mtu(facts: &Facts) -> Finding {
    const ID: &str = "mtu";
    if facts.members().is_none() {
        return facts.without_node(ID);
    }
    judge_routes(ID, &facts.routes)
}

fn judge_routes(id: &'static str, routes: &[Route]) -> Finding {
    let unreachable: Vec<_> = routes
        .iter()
        .filter_map(|route| {
            let why = route.path.as_ref().err()?;
            Some(format!(
                "member {} at {} has no route: {why}",
                route.member, route.address
            ))
        })
        .collect();
    if !unreachable.is_empty() {
        let advice = "see to the route (ip route get), or correct the addresses in the files";
        return Finding::fail(id, unreachable.join(", "), advice);
    }
    let narrow: Vec<_> = routes
        .iter()
        .filter_map(|route| {
            let path = route.path.as_ref().ok()?;
            let needed = packet(route.address);
            let by = path.interface.as_deref().unwrap_or("its interface");
            (path.mtu < needed).then(|| {
                format!(
                    "the way to member {} by {by} has an MTU of {}, and the longest packets have \
                     {needed} bytes",
                    route.member, path.mtu
                )
            })
        })
        .collect();
    if !narrow.is_empty() {
        return Finding::warn(
            id,
            narrow.join(", "),
            "they go in pieces, of which none may be lost or kept out by a firewall: raise the MTU \
             (ip link set DEVICE mtu 1500)",
        );
    }
    let paths = routes.iter().filter_map(|route| route.path.as_ref().ok());
    match paths.map(|path| path.mtu).min() {
        None => Finding::ok(id, "no member is on another host"),
        Some(least) => Finding::ok(id, format_args!("{least} at least")),
    }
}

/// How long the longest packet to `address` is.
fn packet(address: SocketAddr) -> u32 {
    const UDP: u32 = 8;
    let ip = if address.is_ipv4() { 20 } else { 40 };
    ip + UDP + DATAGRAM as u32
}

pub(super) fn filter(facts: &Facts) -> Finding {
    const ID: &str = "filter";
    match (&facts.filter, facts.host.optmem_max) {
        (None, _) => facts.without_node(ID),
        (Some(Ok(())), _) => {
            Finding::ok(ID, "the kernel drops what comes from no member's address")
        }
        (Some(Err(why)), limit) => {
            let limit = limit.map(|limit| format!(", and net.core.optmem_max is {limit}"));
            Finding::warn(
                ID,
                format_args!(
                    "the kernel takes no filter for this group ({why}{}): whoever can send to this \
                     member's port can fill its queue",
                    limit.unwrap_or_default()
                ),
                "raise the sysctl net.core.optmem_max to 131072 and start the agent again, or have a \
                 firewall pass nothing but what members send",
            )
        }
    }
}

pub(super) fn floods(facts: &Facts) -> Finding {
    const ID: &str = "floods";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    match status.protection.as_ref().map(|it| it.flooded.as_slice()) {
        None | Some([]) => Finding::ok(ID, "none"),
        Some(flooded) => Finding::warn(
            ID,
            format_args!(
                "floods come from the addresses of {}",
                named(flooded.iter().copied())
            ),
            "find out who sends them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use distlock::{Config, NodeId};

    use super::*;
    use crate::doctor::facts::{File, Node, Path, Process};
    use crate::doctor::finding::Outcome;

    fn route(member: u16, address: &str, path: Result<u32, &str>) -> Route {
        Route {
            member: NodeId::new(member).unwrap(),
            address: address.parse().unwrap(),
            path: path.map_err(str::to_owned).map(|mtu| Path {
                interface: Some("eth0".to_owned()),
                mtu,
            }),
        }
    }

    #[test]
    fn the_longest_packets_fit_in_one_piece() {
        let (four, six) = ("10.0.0.2:7400", "[fd00::2]:7400");
        for (address, mtu, expected) in [
            (four, 1_427, Outcome::Warn),
            (four, 1_428, Outcome::Ok),
            (six, 1_447, Outcome::Warn),
            (six, 1_448, Outcome::Ok),
        ] {
            let told = judge_routes("mtu", &[route(2, address, Ok(mtu))]);
            assert_eq!(told.result, expected, "{told}");
        }
        let both = [route(2, four, Ok(1_500)), route(3, four, Ok(1_280))];
        let told = judge_routes("mtu", &both);
        assert!(told.what.contains("member 3 by eth0"), "{told}");
        assert!(!told.what.contains("member 2"), "{told}");
        assert_eq!(judge_routes("mtu", &[]).result, Outcome::Ok);
        let told = judge_routes("mtu", &[route(2, four, Err("Network is unreachable"))]);
        assert_eq!(told.result, Outcome::Fail);
    }

    fn facts(address: AddressUse, process: Option<u32>) -> Facts {
        let text = "[group]\nname = \"shop\"\n\
                    [[member]]\nid = 1\naddress = \"udp:127.0.0.1:7401\"\n";
        let config = Config::parse(text).unwrap();
        let is_stopped = false;
        Facts {
            node: Node::Known(Box::new(config.node(1).unwrap())),
            file: File::Read {
                path: "shop.toml".into(),
                config: Box::new(config),
                writers: None,
            },
            address: Some(address),
            process: process.map(|pid| Process { pid, is_stopped }),
            ..Facts::default()
        }
    }

    #[test]
    fn an_address_is_this_members_or_free() {
        for (found, process, expected) in [
            (AddressUse::Free, None, Outcome::Ok),
            (AddressUse::Taken(Some(7)), Some(7), Outcome::Ok),
            (AddressUse::Taken(None), Some(7), Outcome::Ok),
            (AddressUse::Taken(Some(8)), Some(7), Outcome::Fail),
            (AddressUse::Taken(Some(8)), None, Outcome::Fail),
            (AddressUse::Taken(None), None, Outcome::Fail),
            (AddressUse::NotHere("no".to_owned()), None, Outcome::Fail),
        ] {
            let told = address(&facts(found, process));
            assert_eq!(told.result, expected, "{told}");
        }
        let mut facts = facts(AddressUse::Taken(None), None);
        facts.agent.answer = Answer::Forbidden("not yours".to_owned());
        assert_eq!(address(&facts).result, Outcome::Skipped);
    }

    #[test]
    fn a_filter_that_is_not_taken_tells_of_the_limit() {
        let mut facts = Facts {
            filter: Some(Ok(())),
            ..Facts::default()
        };
        assert_eq!(filter(&facts).result, Outcome::Ok);
        facts.filter = Some(Err("Out of memory".to_owned()));
        facts.host.optmem_max = Some(1);
        let told = filter(&facts);
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("net.core.optmem_max is 1)"), "{told}");
    }
}
