//! Finds the process that has a socket, for the error message of the one that cannot, and for who
//! looks for faults.
//!
//! Best effort, and never while an agent works: where `/proc` does not tell, the message goes without. For
//! that procfs would be too much: it would be in every program with the library.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::inspection::SocketHolder;

/// The process that has `address`, or its port on all addresses of this host.
pub(super) fn of_udp(address: SocketAddr) -> Option<u32> {
    at_udp(address)?.pid
}

/// The socket that has `address`, or its port on all addresses of this host.
pub(super) fn at_udp(address: SocketAddr) -> Option<SocketHolder> {
    // The kernel prints addresses as words in the host's byte order.
    let (table, ip): (_, String) = match address.ip() {
        IpAddr::V4(ip) => ("/proc/net/udp", word(ip.octets())),
        IpAddr::V6(ip) => {
            let words = ip.octets();
            let (words, _) = words.as_chunks::<4>();
            ("/proc/net/udp6", words.iter().copied().map(word).collect())
        }
    };
    let any = "0".repeat(ip.len());
    let port = address.port();
    let own = find(table, port, &[&ip, &any]);
    // One of IPv6 at all addresses has those of IPv4 too, unless it said that it does without.
    let both = || find("/proc/net/udp6", port, &[&"0".repeat(32)]);
    let inode = own.or_else(|| both().filter(|_| address.is_ipv4()))?;
    Some(SocketHolder {
        pid: has_socket(&inode),
    })
}

/// The inode of a socket in `table` that has `port` at one of `ips`.
fn find(table: &str, port: u16, ips: &[&str]) -> Option<String> {
    let wanted: Vec<_> = ips.iter().map(|ip| format!("{ip}:{port:04X}")).collect();
    let table = fs::read_to_string(table).ok()?;
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields
            .nth(1)
            .filter(|local| wanted.iter().any(|wanted| wanted == local))?;
        fields.nth(7).map(str::to_owned)
    })
}

fn word(bytes: [u8; 4]) -> String {
    format!("{:08X}", u32::from_ne_bytes(bytes))
}

/// The process that has the Unix socket at `path`.
pub(super) fn of_path(path: &Path) -> Option<u32> {
    at_path(path)?.pid
}

/// The Unix socket at `path`.
pub(super) fn at_path(path: &Path) -> Option<SocketHolder> {
    let table = fs::read("/proc/net/unix").ok()?;
    let path = path.as_os_str().as_bytes();
    let line = table.split(|&byte| byte == b'\n').find(|line| {
        line.strip_suffix(path)
            .is_some_and(|front| front.ends_with(b" "))
    })?;
    let front = str::from_utf8(&line[..line.len() - path.len()]).ok()?;
    Some(SocketHolder {
        pid: has_socket(front.split_ascii_whitespace().nth(6)?),
    })
}

fn has_socket(inode: &str) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| {
            fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut descriptors| {
                descriptors.any(|fd| {
                    fd.and_then(|fd| fs::read_link(fd.path()))
                        .is_ok_and(|link| link.as_os_str() == wanted.as_str())
                })
            })
        })
}
