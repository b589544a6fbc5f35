//! A printer of our own: raw TCP in, one file of "paper" out.
//!
//! It is as simple as the lecture's: several hosts may be connected at once, it prints each line as
//! it comes, and knows nothing of files. So it mixes the lines of those who do not take turns. It can
//! be told to look at fences, and then prints nothing of a host whose lock has gone on to another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::document::LINE_BYTES_MAX;
use crate::gate::{Gate, REFUSED};
use crate::{Result, complain};

/// How many hosts it serves at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 16;

/// A running printer. Its threads end with the process.
pub(crate) struct Printer {
    address: SocketAddr,
    head: JoinHandle<io::Result<()>>,
}

enum Message {
    Line(u64, Vec<u8>),
    /// All lines of a connection are printed once this is reached; dropping the stream says so.
    /// `None` if it broke.
    End(u64, Option<TcpStream>),
}

impl Printer {
    /// Listens on `address`, and prints to a new file at `output`, `line_time` a line. With `fences`
    /// it keeps the highest fence there, and refuses lower ones.
    pub(crate) fn start(
        address: SocketAddr,
        output: &Path,
        line_time: Duration,
        fences: Option<PathBuf>,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let paper = File::create(output)
            .map_err(|error| format!("cannot write to {}: {error}", output.display()))?;
        let address = listener.local_addr()?;
        // Without a buffer, blocked senders are served in the order in which they came.
        let (sender, lines) = bounded(0);
        let listener = Arc::new(listener);
        let next = Arc::new(AtomicU64::new(0));
        for _ in 0..CONNECTIONS_MAX {
            let (listener, next, sender) = (listener.clone(), next.clone(), sender.clone());
            thread::spawn(move || accept(&listener, &next, &sender));
        }
        let gate = fences.map(Gate::new);
        let head = thread::spawn(move || print(paper, &lines, line_time, gate));
        Ok(Self { address, head })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prints until it is ended from outside or the paper cannot be written.
    pub(crate) fn wait(self) -> Result<ExitCode> {
        self.head.join().expect("the print head does not panic")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn accept(listener: &TcpListener, next: &AtomicU64, sender: &Sender<Message>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let connection = next.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = receive(stream, connection, sender) {
                    complain(format_args!("printer: {error}"));
                    // If the print head has stopped, that was said.
                    let _ = sender.send(Message::End(connection, None));
                }
            }
            Err(error) => {
                complain(format_args!("printer: cannot accept: {error}"));
                // Out of descriptors, most likely: give them time to come back.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn receive(stream: TcpStream, connection: u64, sender: &Sender<Message>) -> io::Result<()> {
    let gone = |_| io::Error::other("the print head has stopped");
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if reader
            .by_ref()
            .take(LINE_BYTES_MAX as u64)
            .read_until(b'\n', &mut line)?
            == 0
        {
            let end = Message::End(connection, Some(reader.into_inner()));
            return sender.send(end).map_err(gone);
        }
        sender.send(Message::Line(connection, line)).map_err(gone)?;
    }
}

fn print(
    mut paper: File,
    lines: &Receiver<Message>,
    line_time: Duration,
    mut gate: Option<Gate>,
) -> io::Result<()> {
    for message in lines {
        match message {
            Message::Line(connection, line) => {
                let admits = |gate: &mut Gate| gate.admits(connection, &line);
                if gate.as_mut().is_none_or(admits) {
                    paper.write_all(&line)?;
                    thread::sleep(line_time);
                }
            }
            Message::End(connection, stream) => {
                if let Some(why) = gate.as_mut().and_then(|gate| gate.end(connection)) {
                    complain(format_args!("printer: refused: {why}"));
                    if let Some(mut stream) = stream {
                        // A host that is gone does not want to know.
                        let _ = stream.write_all(&[REFUSED, why.as_bytes(), b"\n"].concat());
                    }
                }
            }
        }
    }
    Ok(())
}
