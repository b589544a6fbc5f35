//! Where an agent serves its metrics by HTTP: one page, to one reader at a time.
//!
//! A reader that is slow keeps others waiting for no more than [`PATIENCE`], and nobody else: the locks are
//! another thread's.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use distlock::Agent;
use distlock::config::MetricsAddress;
use distlock_agent::runtime::{clock, trust};

use super::page;
use crate::exit::{CONFIG, Failure, UNAVAILABLE};
use crate::refusal;

/// How long a reader may take to ask, and again to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request: Prometheus's has some 300 bytes.
const MAX_REQUEST: usize = 8 * 1_024;
const MAX_HEADERS: usize = 64;

const OPENMETRICS: &str = "application/openmetrics-text";

/// A socket at which nobody is served yet.
#[derive(Debug)]
pub(crate) struct Endpoint {
    listener: Listener,
    /// The socket's file, which is removed at the end.
    path: Option<PathBuf>,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// One reader.
trait Stream: Read + Write {
    fn set_patience(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Endpoint {
    /// Takes the place at `address`.
    ///
    /// # Errors
    /// If it cannot be had: 77 without the permission, 78 where others could take it away, 69 otherwise.
    pub(crate) fn bind(address: &MetricsAddress) -> Result<Self, Failure> {
        if let MetricsAddress::Unix(path) = address {
            let directory = path.parent().unwrap_or(path);
            trust::own_directory(directory).map_err(|why| {
                let what = format!(
                    "the metrics are not served at {address}: {why}; {}, or change [metrics] listen",
                    why.advice()
                );
                Failure::new(CONFIG, what)
            })?;
        }
        let bound = match address {
            MetricsAddress::Tcp(address) => TcpListener::bind(address).map(|listener| Self {
                listener: Listener::Tcp(listener),
                path: None,
            }),
            MetricsAddress::Unix(path) => bind_unix(path).map(|listener| Self {
                listener: Listener::Unix(listener),
                path: Some(path.clone()),
            }),
        };
        bound.map_err(|error| match refusal::code_of(&error) {
            UNAVAILABLE => {
                let what = format!(
                    "the metrics cannot be served at {address}: {error}; see what else is there, or \
                     change [metrics] listen"
                );
                Failure::new(UNAVAILABLE, what)
            }
            _ => refusal::system(&format!("serve the metrics at {address}"), error),
        })
    }

    /// Serves what `agent` counts and measures, on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn serve(&self, agent: Agent) -> Result<(), Failure> {
        let listener = match &self.listener {
            Listener::Tcp(listener) => listener.try_clone().map(Listener::Tcp),
            Listener::Unix(listener) => listener.try_clone().map(Listener::Unix),
        };
        let started = listener.and_then(|listener| {
            let serve = move || serve_all(&listener, &agent);
            thread::Builder::new()
                .name("metrics".to_owned())
                .spawn(serve)
        });
        started
            .map(drop)
            .map_err(|error| refusal::system("serve the metrics", error))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// At the place of a socket that nobody serves any more, too: its agent was killed.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            _ => {}
        }
    }
    let listener = UnixListener::bind(path)?;
    // Whoever may connect sees the names of locks, as by `status`: the agent's user, and a group that the
    // operator gives the file to.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

fn serve_all(listener: &Listener, agent: &Agent) {
    loop {
        let stream: io::Result<Box<dyn Stream>> = match listener {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
        };
        match stream {
            // What becomes of it is the reader's business.
            Ok(mut stream) => drop(answer(&mut *stream, agent)),
            // Out of descriptors, most likely.
            Err(_) => clock::sleep(PATIENCE),
        }
    }
}

/// Reads one request, and answers it.
fn answer(stream: &mut dyn Stream, agent: &Agent) -> io::Result<()> {
    let response = match read_request(stream)? {
        Asked::Page { openmetrics } => match agent.metrics() {
            Ok(Some(metrics)) => {
                let page = page::openmetrics(metrics);
                if openmetrics {
                    let kind = format!("{OPENMETRICS}; version=1.0.0; charset=utf-8");
                    response("200 OK", &kind, &page)
                } else {
                    let kind = "text/plain; version=0.0.4; charset=utf-8";
                    response("200 OK", kind, &page::classic(&page))
                }
            }
            Ok(None) => refused("503 Service Unavailable", "There is no agent."),
            Err(error) => refused("503 Service Unavailable", &error.to_string()),
        },
        Asked::Other(status) => refused(status, "The metrics are at /metrics, for GET."),
    };
    stream.set_patience(PATIENCE)?;
    stream.write_all(response.as_bytes())
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Page {
        openmetrics: bool,
    },
    /// What it is refused with.
    Other(&'static str),
}

fn read_request(stream: &mut dyn Stream) -> io::Result<Asked> {
    let deadline = clock::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1_024];
    loop {
        let left = deadline.since(clock::now());
        if left.is_zero() {
            return Ok(Asked::Other("408 Request Timeout"));
        }
        stream.set_patience(left)?;
        let len = match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if is_late(&error) => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&part[..len]);
        if let Some(asked) = parse(&bytes) {
            return Ok(asked);
        }
        if bytes.len() > MAX_REQUEST {
            return Ok(Asked::Other("431 Request Header Fields Too Large"));
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// What `bytes` ask for; `None` if more are to come.
fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Asked::Other("400 Bad Request")),
    }
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Some(match (request.method, path) {
        (Some("GET"), "/metrics") => {
            let accepts = |header: &httparse::Header<'_>| {
                header.name.eq_ignore_ascii_case("accept")
                    && String::from_utf8_lossy(header.value).contains(OPENMETRICS)
            };
            let openmetrics = request.headers.iter().any(accepts);
            Asked::Page { openmetrics }
        }
        (Some("GET"), _) => Asked::Other("404 Not Found"),
        _ => Asked::Other("405 Method Not Allowed"),
    })
}

fn refused(status: &str, why: &str) -> String {
    response(status, "text/plain; charset=utf-8", &format!("{why}\n"))
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_served() {
        let asked = |text: &str| parse(text.as_bytes());
        let end = "Host: x\r\n\r\n";
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        let page = |openmetrics| Some(Asked::Page { openmetrics });
        assert_eq!(
            asked(&format!("GET /metrics HTTP/1.1\r\n{end}")),
            page(false)
        );
        let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
        let wanted = asked(&format!("GET /metrics?x=y HTTP/1.1\r\n{accept}{end}"));
        assert_eq!(wanted, page(true));
        for (line, status) in [
            ("GET / HTTP/1.1", "404 Not Found"),
            ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
            ("GET", "400 Bad Request"),
        ] {
            let text = format!("{line}\r\n{end}");
            assert_eq!(asked(&text), Some(Asked::Other(status)), "{line}");
        }
    }
}
