//! What the kernel is asked to drop before it takes room in a socket's queue: what comes from no
//! member's address. So nobody else can fill the queue, at whatever rate he sends; and it costs the
//! agent nothing.
//!
//! Classic BPF (McCanne and Jacobson 1993). A filter of a UDP socket sees a datagram from the UDP
//! header on, and what is before it at [`NETWORK`]. It is a help and no proof: where the kernel
//! refuses it, or the members are too many for it, the transport looks for itself, as it does
//! anyway.

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

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);

/// Has `socket` hear members alone, and, if it is one that hears what it sends itself, not `me`.
pub(super) fn attach<'a>(
    socket: SockRef<'_>,
    members: impl Iterator<Item = &'a SocketAddr>,
    me: Option<NodeId>,
) {
    let refused = match program(members, me) {
        Some(program) => match socket.attach_filter(&program) {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        None => "the members are too many".to_owned(),
    };
    tracing::debug!("the kernel does not filter what comes: {refused}");
    // One that was attached before would keep new members out. There may have been none.
    let _ = socket.detach_filter();
}

/// `None` if it would be too long.
fn program<'a>(
    members: impl Iterator<Item = &'a SocketAddr>,
    me: Option<NodeId>,
) -> Option<Vec<SockFilter>> {
    let mut program = Vec::new();
    if let Some(me) = me {
        // What is too short to be loaded does not pass.
        program.push(SockFilter::new(LOAD_HALF, 0, 0, UDP_HEADER + FROM));
        program.push(SockFilter::new(JUMP_IF_EQUAL, 0, 1, me.as_u16().into()));
        program.push(DROP);
    }
    for member in members {
        let words: Vec<_> = match member {
            SocketAddr::V4(member) => vec![(SOURCE_V4, u32::from(*member.ip()))],
            SocketAddr::V6(member) => {
                let octets = member.ip().octets();
                let words = octets.as_chunks::<4>().0.iter().copied();
                (SOURCE_V6..)
                    .step_by(4)
                    .zip(words.map(u32::from_be_bytes))
                    .collect()
            }
        };
        // Each comparison that fails goes on after what passes this member.
        let mut left = 2 * words.len() + 2;
        for (at, word) in words {
            left -= 2;
            program.push(SockFilter::new(LOAD_WORD, 0, 0, NETWORK.wrapping_add(at)));
            program.push(SockFilter::new(JUMP_IF_EQUAL, 0, left as u8 + 1, word));
        }
        program.push(SockFilter::new(LOAD_HALF, 0, 0, SOURCE_PORT));
        program.push(SockFilter::new(JUMP_IF_EQUAL, 0, 1, member.port().into()));
        program.push(PASS);
    }
    program.push(DROP);
    (program.len() <= MAX_LEN).then_some(program)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;
    use std::{env, fs, io, thread};

    use nix::sched::{CloneFlags, unshare};

    use super::*;

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
        attach((&socket).into(), [own].iter(), None);
        assert!(!hears(&socket));
        (socket, hears)
    }

    /// One that was there before would know nothing of who is a member since.
    #[test]
    fn one_that_would_be_too_long_leaves_none_behind() {
        let (socket, hears) = filtered();
        let many: Vec<_> = (1..1_100)
            .map(|port| ([192, 0, 2, 1], port).into())
            .collect();
        assert!(program(many.iter(), None).is_none());
        attach((&socket).into(), many.iter(), None);
        assert!(hears(&socket));
    }

    #[test]
    fn one_that_the_kernel_has_no_memory_for_leaves_none_behind() {
        // A thread's network namespace is its own, and so is what its sockets may take.
        let network = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let up = Command::new("ip")
                .args(["link", "set", "lo", "up"])
                .status()?;
            assert!(up.success());
            let (socket, hears) = filtered();
            fs::write("/proc/sys/net/core/optmem_max", "1")?;
            let member = socket.local_addr()?;
            attach((&socket).into(), [member].iter(), None);
            assert!(hears(&socket));
            io::Result::Ok(())
        });
        // Before Linux 6.8 the limit is the whole host's, and left alone.
        if let Err(error) = network.join().unwrap() {
            println!("SKIPPED: no network with a limit of its own: {error}");
            assert_ne!(env::var("DISTLOCK_TESTS").as_deref(), Ok("all"), "{error}");
        }
    }
}
