//! The two ways to speak to a printer, and when each is through with a file.

#[cfg(feature = "ipp")]
mod ipp;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use crate::document::Document;
use crate::gate::REFUSED;
use crate::options::Options;
use crate::{Result, clock};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a printer is, and what it speaks.
#[derive(Clone, Debug)]
pub(crate) enum PrinterUri {
    /// Raw TCP: host and port.
    Socket(String),
    /// The Internet Printing Protocol, RFC 8011.
    #[cfg(feature = "ipp")]
    Ipp(ipp::Uri),
}

/// What goes into one IPP job. IPP keeps a job whole by itself; the lecture's printer takes each
/// line in a message of its own, and keeps nothing whole.
#[cfg(feature = "ipp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jobs {
    /// A file, sent line by line.
    File,
    /// A line.
    Line,
}

#[cfg(feature = "ipp")]
impl FromStr for Jobs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "file" => Ok(Self::File),
            "line" => Ok(Self::Line),
            _ => Err("it is not file or line"),
        }
    }
}

impl FromStr for PrinterUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("socket", authority)) => {
                let authority = authority.trim_end_matches('/');
                // A colon inside the brackets of an IPv6 address begins no port.
                let has_port = authority
                    .rsplit(']')
                    .next()
                    .is_some_and(|end| end.contains(':'));
                let port = if has_port { "" } else { ":9100" };
                Ok(Self::Socket(format!("{authority}{port}")))
            }
            #[cfg(feature = "ipp")]
            Some(("ipp", _)) => text
                .parse()
                .map(Self::Ipp)
                .map_err(|error| format!("{error}")),
            #[cfg(not(feature = "ipp"))]
            Some(("ipp", _)) => {
                Err("this build prints over raw TCP alone: build it with --features ipp".to_owned())
            }
            _ => Err("give socket://HOST[:9100] or ipp://HOST[:631]/PATH".to_owned()),
        }
    }
}

impl fmt::Display for PrinterUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(authority) => write!(f, "socket://{authority}"),
            #[cfg(feature = "ipp")]
            Self::Ipp(uri) => write!(f, "{uri}"),
        }
    }
}

/// Prints one document and returns once the printer is through with it: only then may the next
/// host begin. `held` tells whether the lock is still ours.
pub(crate) fn print(
    printer: &PrinterUri,
    options: &Options,
    document: Document,
    held: &dyn Fn() -> bool,
) -> Result<()> {
    let deadline = Deadline(clock::now().saturating_add(options.printer_timeout));
    match printer {
        PrinterUri::Socket(authority) => print_raw(authority, document, &deadline, held),
        #[cfg(feature = "ipp")]
        PrinterUri::Ipp(uri) => ipp::print(uri, options.jobs, document, deadline, held),
    }
}

/// Port 9100: the connection is the job. CUPS calls it `waiteof`: what was sent is printed when the
/// printer closes, not when the last write returns.
fn print_raw(
    authority: &str,
    mut document: Document,
    deadline: &Deadline,
    held: &dyn Fn() -> bool,
) -> Result<()> {
    let mut stream = connect(authority)?;
    // Each line leaves in a message of its own instead of waiting for the next.
    stream.set_nodelay(true)?;
    while let Some(line) = document.next_line()? {
        if !held() {
            return Err(lost(&document.title));
        }
        stream.set_write_timeout(Some(deadline.remaining()?))?;
        stream.write_all(&line).map_err(timed_out)?;
    }
    stream.shutdown(Shutdown::Write)?;
    // Some printers answer with their state; nobody asked. Ours says so if it has refused the file.
    let (mut answer, mut chunk) = (Vec::new(), [0; 512]);
    loop {
        stream.set_read_timeout(Some(deadline.remaining()?))?;
        let len = stream.read(&mut chunk).map_err(timed_out)?;
        if len == 0 {
            break;
        }
        let room = chunk.len().saturating_sub(answer.len());
        answer.extend_from_slice(&chunk[..len.min(room)]);
    }
    match answer.strip_prefix(REFUSED) {
        Some(why) => {
            let why = String::from_utf8_lossy(why);
            Err(format!("the printer refuses {}: {}", document.title, why.trim_end()).into())
        }
        None => Ok(()),
    }
}

fn connect(authority: &str) -> Result<TcpStream> {
    let mut last = None;
    for address in authority
        .to_socket_addrs()
        .map_err(|error| format!("{authority}: {error}"))?
    {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::Error::other("it has no address"));
    Err(format!("cannot reach the printer at {authority}: {error}").into())
}

fn lost(title: &str) -> Box<dyn std::error::Error> {
    format!("the lock was lost while {title} was printed; the rest was not sent").into()
}

fn timed_out(error: io::Error) -> Box<dyn std::error::Error> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Deadline::PASSED.into(),
        _ => error.into(),
    }
}

/// Until when the printer must be through.
struct Deadline(Duration);

impl Deadline {
    const PASSED: &str = "the printer took longer than --printer-timeout allows";

    /// What is left; never zero, which a socket would take for "no limit".
    fn remaining(&self) -> Result<Duration> {
        let remaining = self.0.saturating_sub(clock::now());
        if remaining.is_zero() {
            Err(Self::PASSED.into())
        } else {
            Ok(remaining)
        }
    }
}
