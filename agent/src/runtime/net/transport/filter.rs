//! What the kernel is asked to drop before it takes room in a socket's queue: what comes from no
//! member's address. So nobody else can fill the queue, at whatever rate he sends; and it costs the
//! agent nothing.
//!
//! Classic BPF (McCanne and Jacobson 1993). A filter of a UDP socket sees a datagram from the UDP
//! header on, and what is before it at [`NETWORK`]. It is a help and no proof: where the kernel
//! refuses it, or the members are too many for it, the transport looks for itself, as it does
//! anyway.
//!
//! The members are a tree, one part of their addresses after the other, and first the part in which
//! they differ least: most have one port and one network. So 1024 members of IPv4 fit, whatever
//! their addresses, and as many of IPv6 that have one port, and the first half of their address,
//! alike. A list of all would be longer than the kernel takes from some 800 (of IPv6, 370) on. The
//! kernel counts its own instructions against `net.core.optmem_max`, and those of two filters while
//! one replaces another: 128 KiB from Linux 6.8 on, in which those have room, and 20 KiB before, in
//! which fewer have.

use std::collections::BTreeSet;
use std::iter;
use std::net::SocketAddr;

use socket2::{SockFilter, SockRef};

use crate::protocol::NodeId;

/// Where the IP header begins (`SKF_NET_OFF` in linux/filter.h).
const NETWORK: u32 = -0x10_0000_i32 as u32;
/// Where the source address is in the headers of IPv4 and IPv6.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;
const SOURCE_PORT: u32 = 0;
const UDP_HEADER: u32 = 8;
/// Where a datagram has its sender's number.
const FROM: u32 = 4;
/// The kernel takes no longer program (`BPF_MAXINSNS`).
const MAX_LEN: usize = 4096;
/// What leads two ways has a byte for each, and one more instruction may come in between.
const NEAR: usize = u8::MAX as usize - 1;

const LOAD_KEPT: u16 = (libc::BPF_LD | libc::BPF_MEM) as u16;
const KEEP: u16 = libc::BPF_ST as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Has `socket` hear members alone, and, if it is one that hears what it sends itself, not `me`.
///
/// # Errors
/// Why it hears everybody.
pub(super) fn attach<'a>(
    socket: SockRef<'_>,
    members: impl Iterator<Item = &'a SocketAddr>,
    me: Option<NodeId>,
) -> Result<(), String> {
    // Nothing comes from an address of the other kind.
    let own = socket.local_addr().map_err(|error| error.to_string())?;
    let members = members.filter(|member| member.is_ipv4() == own.is_ipv4());
    let program = program(members, me);
    let program = program.ok_or("the members' addresses are too many and too different for it");
    if program
        .as_ref()
        .is_ok_and(|program| socket.attach_filter(program).is_ok())
    {
        return Ok(());
    }
    // One that was attached before would keep new members out, and takes memory that there may not be
    // for two. There may have been none.
    let _ = socket.detach_filter();
    let attached = socket.attach_filter(&program?);
    attached.map_err(|error| error.to_string())
}

/// For members whose addresses are all of one kind. `None` if it would be too long.
fn program<'a>(
    members: impl Iterator<Item = &'a SocketAddr>,
    me: Option<NodeId>,
) -> Option<Vec<SockFilter>> {
    let members: Vec<_> = members.map(parts).collect();
    let how_many = |part: usize| {
        let values = members.iter().filter_map(|member| member.get(part));
        values.collect::<BTreeSet<_>>().len()
    };
    let mut order: Vec<_> = (0..members.first().map_or(0, Vec::len)).collect();
    order.sort_by_key(|&part| how_many(part));
    let ordered = |member: &Vec<_>| order.iter().map(|&part| member[part]).collect();
    let members: BTreeSet<Vec<_>> = members.iter().map(ordered).collect();
    let members: Vec<_> = members.into_iter().collect();

    let mut program = Backwards::default();
    program.pass = program.put(RETURN, u32::MAX);
    program.drop = program.put(RETURN, 0);
    let begin = match members.is_empty() {
        true => program.drop,
        false => {
            program.tree(&members, 0);
            program.keep(&members[0])
        }
    };
    if let Some(me) = me {
        // What is too short to be loaded does not pass.
        program.compare(me.as_u16().into(), program.drop, begin);
        program.put(LOAD_HALF, UDP_HEADER + FROM);
    }
    let mut program = program.instructions;
    program.reverse();
    (program.len() <= MAX_LEN).then_some(program)
}

/// Something in the headers: by what it is loaded, from where, and what it is of a member.
type Part = (u16, u32, u32);

fn parts(member: &SocketAddr) -> Vec<Part> {
    let port = (LOAD_HALF, SOURCE_PORT, member.port().into());
    let (at, octets) = match member {
        SocketAddr::V4(member) => (SOURCE_V4, member.ip().octets().to_vec()),
        SocketAddr::V6(member) => (SOURCE_V6, member.ip().octets().to_vec()),
    };
    let words = octets.as_chunks::<4>().0.iter().copied();
    let words = words.map(u32::from_be_bytes);
    let words = (at..).step_by(4).zip(words);
    let words = words.map(|(at, word)| (LOAD_WORD, NETWORK.wrapping_add(at), word));
    words.chain(iter::once(port)).collect()
}

/// A program that is written from its end to its beginning, its last instruction first: it can only
/// jump forward, so that where a jump leads to is there before it.
#[derive(Default)]
struct Backwards {
    instructions: Vec<SockFilter>,
    /// Where it passes a datagram, and where it drops one; or how to get there.
    pass: usize,
    drop: usize,
}

impl Backwards {
    /// Where it is then.
    fn put(&mut self, code: u16, operand: u32) -> usize {
        self.instructions.push(SockFilter::new(code, 0, 0, operand));
        self.instructions.len() - 1
    }

    /// How many instructions the next one would leave out to get to the one at `target`.
    fn over(&self, target: usize) -> usize {
        self.instructions.len() - 1 - target
    }

    /// Where a comparison gets to `target` from.
    fn near(&mut self, target: usize) -> usize {
        let over = self.over(target);
        match over < NEAR {
            true => target,
            false => self.put(JUMP, over as u32),
        }
    }

    /// Goes to `found` if `value` was loaded, and else to `other`.
    fn compare(&mut self, value: u32, found: usize, other: usize) -> usize {
        let (found, other) = (self.near(found), self.near(other));
        let [found, other] = [found, other].map(|target| self.over(target) as u8);
        let comparison = SockFilter::new(JUMP_IF_EQUAL, found, other, value);
        self.instructions.push(comparison);
        self.instructions.len() - 1
    }

    /// Keeps the parts of what has come where the tree looks for them. To load a part from the
    /// headers takes the kernel some ten instructions of its own, which count, and to load a kept
    /// one takes one.
    fn keep(&mut self, parts: &[Part]) -> usize {
        for (depth, &(load, at, _)) in parts.iter().enumerate().rev() {
            self.put(KEEP, depth as u32);
            self.put(load, at);
        }
        self.instructions.len() - 1
    }

    /// Looks which of `members`, in order and without the same twice, sent a datagram, the parts of
    /// which before `depth` are theirs.
    fn tree(&mut self, members: &[Vec<Part>], depth: usize) -> usize {
        self.drop = self.near(self.drop);
        let mut next = self.drop;
        let is_last = members[0].len() == depth + 1;
        for alike in members.chunk_by(|a, b| a[depth] == b[depth]).rev() {
            let found = match is_last {
                true => {
                    self.pass = self.near(self.pass);
                    self.pass
                }
                false => self.tree(alike, depth + 1),
            };
            next = self.compare(alike[0][depth].2, found, next);
        }
        self.put(LOAD_KEPT, depth as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::UdpSocket;
    use std::process::Command;
    use std::sync::Arc;
    use std::{fs, io, thread};

    use nix::sched::{CloneFlags, unshare};
    use tracing::subscriber;

    use super::*;
    use crate::runtime::Address;
    use crate::runtime::net::transport::Transport;
    use crate::runtime::skipped::skipped;
    use crate::runtime::warnings::Warnings;

    /// A socket that is filtered, and whether it hears a stranger; of the network that is there.
    fn filtered() -> (UdpSocket, impl Fn(&UdpSocket) -> bool) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let own = socket.local_addr().unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let hears = move |socket: &UdpSocket| {
            stranger.send_to(b"hello", own).unwrap();
            socket.recv(&mut [0; 8]).is_ok()
        };
        assert!(hears(&socket));
        attach((&socket).into(), [own].iter(), None).unwrap();
        assert!(!hears(&socket));
        (socket, hears)
    }

    /// IPv6 members that have nothing alike.
    fn all_different() -> Vec<SocketAddr> {
        let address = |n: u16| ([n; 8], n).into();
        (1..=1_024).map(address).collect()
    }

    /// Another member's word on membership is no reason to hear nobody.
    #[test]
    fn an_address_of_the_other_kind_does_nothing() {
        let (socket, hears) = filtered();
        let member = UdpSocket::bind("127.0.0.1:0").unwrap();
        let both = [
            "[::1]:7400".parse().unwrap(),
            member.local_addr().unwrap(),
            "[::2]:7400".parse().unwrap(),
        ];
        attach((&socket).into(), both.iter(), None).unwrap();
        assert!(!hears(&socket));
        member
            .send_to(b"hello", socket.local_addr().unwrap())
            .unwrap();
        assert!(socket.recv(&mut [0; 8]).is_ok());
    }

    /// One that was there before would not know the members of today.
    #[test]
    fn one_that_would_be_too_long_leaves_none_behind() {
        let (socket, hears) = filtered();
        assert!(program(all_different().iter(), None).is_none());
        // Of the socket's own kind each group fits, so this is no group's.
        let many: Vec<_> = (1..=60_000)
            .map(|n: u16| ([10, (n >> 8) as u8, n as u8, 1], n).into())
            .collect();
        attach((&socket).into(), many.iter(), None).unwrap_err();
        assert!(hears(&socket));
    }

    /// As many as a group may have; and the kernel has both while one replaces another.
    #[test]
    fn those_of_a_large_group_fit() {
        let me = NodeId::new(1_024);
        let fits = |own: &str, address: fn(u16) -> SocketAddr| {
            let Ok(socket) = UdpSocket::bind(own) else {
                skipped("this host has no IPv6");
                return;
            };
            let attach_some = |first| {
                let members: Vec<_> = (first..first + 1_024).map(address).collect();
                assert!(program(members.iter(), me).is_some());
                attach((&socket).into(), members.iter(), me)
            };
            for first in [1, 2, 3] {
                if let Err(why) = attach_some(first) {
                    // Before Linux 6.8 it is less.
                    let limit = fs::read_to_string("/proc/sys/net/core/optmem_max").unwrap();
                    let limit: usize = limit.trim().parse().unwrap();
                    assert!(limit < 131_072, "{why}");
                    return skipped(&why);
                }
            }
        };
        let v4 = "127.0.0.1:0";
        fits(v4, |n| ([192, 168, (n >> 8) as u8, n as u8], 7400).into());
        fits(v4, |n| ([10, 0, 0, 1], 7400 + n).into());
        fits(v4, |n| {
            ([192, 168, (n >> 8) as u8, n as u8], 7400 + n).into()
        });
        let v6 = "[::1]:0";
        fits(v6, |n| ([0xfd00, 0, 0, 0, 0, 0, 0, n], 7400).into());
        // As interfaces choose for themselves.
        fits(v6, |n| ([0xfd00, 0, 0, 0, n, !n, n / 2, n], 7400).into());
    }

    /// Far more than one comparison can jump over, in each order of the parts of an address; nobody
    /// passes who has the one part of one member and the other of another.
    #[test]
    fn each_of_many_members_passes_and_nobody_else() {
        const MANY: u16 = 500;
        type Source = fn(u16) -> (u8, u16);
        let sources: [Source; 3] = [
            |n| ((n % 7) as u8, 20_000 + n),
            |n| (n as u8, 20_000 + n / 256),
            |n| (n as u8, 20_000 + n),
        ];
        for (kind, source) in sources.into_iter().enumerate() {
            // This test's process and kind have a loopback network of their own.
            let process = (std::process::id() % 250) as u8 + 1;
            let address = |ip, port| {
                let (ip, port) = (source(ip).0, source(port).1);
                SocketAddr::from(([127, process, kind as u8, ip], port))
            };
            let members: BTreeSet<_> = (0..MANY).map(|n| address(n, n)).collect();
            let others: BTreeSet<_> = (0..MANY)
                .flat_map(|n| [address(n, n + 100), address(n, n + 1_000)])
                .filter(|address| !members.contains(address))
                .collect();
            assert!(members.len() > 400 && others.len() > 400);
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            if let Err(why) = attach((&socket).into(), members.iter(), None) {
                return skipped(&why);
            }
            let passes = |from: &SocketAddr| {
                let sender = UdpSocket::bind(from).unwrap();
                sender
                    .send_to(b"hello", socket.local_addr().unwrap())
                    .unwrap();
                socket.recv(&mut [0; 8]).is_ok()
            };
            assert!(members.iter().all(passes));
            assert!(!others.iter().any(passes));
        }
    }

    /// Has `act` done in a network of its own, where sockets may have no memory for filters once
    /// `starve` was called.
    fn in_a_network_of_its_own(act: fn(starve: &dyn Fn() -> io::Result<()>) -> io::Result<()>) {
        // A thread's network namespace is its own, and so is what its sockets may take.
        let network = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let up = Command::new("ip")
                .args(["link", "set", "lo", "up"])
                .status()?;
            assert!(up.success());
            act(&|| fs::write("/proc/sys/net/core/optmem_max", "1"))
        });
        // Before Linux 6.8 the limit is the whole host's, and left alone.
        if let Err(error) = network.join().unwrap() {
            skipped(&format!("no network with a limit of its own: {error}"));
        }
    }

    #[test]
    fn one_that_the_kernel_has_no_memory_for_leaves_none_behind() {
        in_a_network_of_its_own(|starve| {
            let (socket, hears) = filtered();
            starve()?;
            let member = socket.local_addr()?;
            attach((&socket).into(), [member].iter(), None).unwrap_err();
            assert!(hears(&socket));
            Ok(())
        });
    }

    /// At each new view it is tried again.
    #[test]
    fn that_there_is_none_is_told_once() {
        in_a_network_of_its_own(|starve| {
            let own = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
            let me = NodeId::new(1).unwrap();
            let members = BTreeMap::from([(me, Address::udp(own).unwrap())]);
            let warnings = Warnings::default();
            let told = Arc::clone(&warnings.told);
            subscriber::with_default(warnings, || {
                let mut transport = Transport::bind(me, &members, None, None, None).unwrap();
                assert_eq!(*told.lock().unwrap(), "");
                starve()?;
                (0..3).for_each(|_| transport.read(&members));
                let told = told.lock().unwrap();
                assert_eq!(told.lines().count(), 1, "{told}");
                assert!(told.contains("optmem_max"), "{told}");
                Ok(())
            })
        });
    }
}
