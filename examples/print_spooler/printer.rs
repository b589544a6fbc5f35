//! The two ways to speak to a printer, and when each is through with a file.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use ipp::model::{DelimiterTag, JobState, StatusCode};
use ipp::operation::IppOperation;
use ipp::prelude::*;
use ipp::request::IppRequestResponse;

use crate::Result;
use crate::clock;
use crate::document::Document;
use crate::gate::REFUSED;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after the last look the state of a job is looked at again: at first, and at most.
const POLL_FIRST: Duration = Duration::from_millis(2);
const POLL_LAST: Duration = Duration::from_millis(500);

/// Where a printer is, and what it speaks.
#[derive(Clone, Debug)]
pub(crate) enum PrinterUri {
    /// Raw TCP: host and port.
    Socket(String),
    /// The Internet Printing Protocol, RFC 8011.
    Ipp(Uri),
}

/// What goes into one IPP job. IPP keeps a job whole by itself; the lecture's printer takes each
/// line in a message of its own, and keeps nothing whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Jobs {
    /// A file, sent line by line.
    File,
    /// A line.
    Line,
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
            Some(("ipp", _)) => text
                .parse()
                .map(Self::Ipp)
                .map_err(|error| format!("{error}")),
            _ => Err("give socket://HOST[:9100] or ipp://HOST[:631]/PATH".to_owned()),
        }
    }
}

impl fmt::Display for PrinterUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(authority) => write!(f, "socket://{authority}"),
            Self::Ipp(uri) => write!(f, "{uri}"),
        }
    }
}

/// Prints one document and returns once the printer is through with it: only then may the next
/// host begin. `held` tells whether the lock is still ours.
pub(crate) fn print(
    printer: &PrinterUri,
    jobs: Jobs,
    document: Document,
    timeout: Duration,
    held: &dyn Fn() -> bool,
) -> Result<()> {
    let deadline = Deadline(clock::now().saturating_add(timeout));
    match printer {
        PrinterUri::Socket(authority) => print_raw(authority, document, &deadline, held),
        PrinterUri::Ipp(uri) => {
            let queue = Queue {
                uri: uri.clone(),
                deadline,
                held,
            };
            match jobs {
                Jobs::File => {
                    let title = document.title.clone();
                    queue.print(&title, IppPayload::new(document.into_stream()))
                }
                Jobs::Line => queue.print_lines(document),
            }
        }
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

/// The queue of an IPP printer, used by one document.
struct Queue<'a> {
    uri: Uri,
    deadline: Deadline,
    held: &'a dyn Fn() -> bool,
}

impl Queue<'_> {
    fn print_lines(&self, mut document: Document) -> Result<()> {
        while let Some(line) = document.next_line()? {
            if !(self.held)() {
                return Err(lost(&document.title));
            }
            self.print(&document.title, IppPayload::new(io::Cursor::new(line)))?;
        }
        Ok(())
    }

    /// Prints one job, and returns once it is completed. A job that we give up is canceled.
    fn print(&self, title: &str, payload: IppPayload) -> Result<()> {
        let job = self.create(title)?;
        let sent = IppOperationBuilder::send_document(self.uri.clone(), job, payload)
            .document_format("text/plain")
            .last(true)
            .build()
            .map_err(Into::into)
            .and_then(|operation| accepted(self.send(operation)?));
        sent.and_then(|_| self.await_end(job, title))
            .inspect_err(|_| {
                // The error that brought us here is told; that this one failed too would not help.
                let _ = IppOperationBuilder::cancel_job(self.uri.clone(), job)
                    .build()
                    .map_err(Into::into)
                    .and_then(|operation| self.send(operation));
            })
    }

    /// Opens a job. The printer may be busy with that of somebody who takes no turns with us.
    fn create(&self, title: &str) -> Result<i32> {
        let mut pause = POLL_FIRST;
        loop {
            let operation = IppOperationBuilder::create_job(self.uri.clone())
                .job_name(title)
                .build()?;
            let response = self.send(operation)?;
            if response.header().status_code() != StatusCode::ServerErrorBusy {
                let response = accepted(response)?;
                return integer(&response, "job-id")
                    .ok_or_else(|| "the printer made a job without a number".into());
            }
            thread::sleep(pause.min(self.deadline.remaining()?));
            pause = (pause * 2).min(POLL_LAST);
        }
    }

    /// Looks at the job until it is completed, canceled or aborted (RFC 8011, 5.3.7).
    fn await_end(&self, job: i32, title: &str) -> Result<()> {
        let mut pause = POLL_FIRST;
        loop {
            let operation =
                IppOperationBuilder::get_job_attributes(self.uri.clone(), job).build()?;
            let response = accepted(self.send(operation)?)?;
            match integer(&response, "job-state").and_then(JobState::from_i32) {
                Some(JobState::Completed) => return Ok(()),
                Some(end @ (JobState::Canceled | JobState::Aborted)) => {
                    return Err(format!("the printer ended job {job} ({title}): {end:?}").into());
                }
                Some(_) if !(self.held)() => return Err(lost(title)),
                Some(_) => {}
                None => return Err(format!("the printer tells no state of job {job}").into()),
            }
            thread::sleep(pause.min(self.deadline.remaining()?));
            pause = (pause * 2).min(POLL_LAST);
        }
    }

    fn send(&self, operation: impl IppOperation) -> Result<IppRequestResponse> {
        let client = IppClient::builder(self.uri.clone())
            // A job is also canceled when its time is over, and that may take some, too.
            .request_timeout(self.deadline.remaining().unwrap_or(CONNECT_TIMEOUT))
            .build();
        let response = client.send(operation);
        response.map_err(|error| format!("the printer at {}: {error}", self.uri).into())
    }
}

fn accepted(response: IppRequestResponse) -> Result<IppRequestResponse> {
    let status = response.header().status_code();
    if status.is_success() {
        Ok(response)
    } else {
        Err(format!("the printer refuses: {status}").into())
    }
}

fn integer(response: &IppRequestResponse, name: &str) -> Option<i32> {
    let job = response
        .attributes()
        .first_of(DelimiterTag::JobAttributes)?;
    let value = job.get(name)?.value();
    value.as_integer().or_else(|| value.as_enum()).copied()
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
