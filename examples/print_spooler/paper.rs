//! A printer of our own: raw TCP in, one file of "paper" out.
//!
//! It is as simple as the lecture's: several hosts may be connected at once, it prints each line as
//! it comes, and knows nothing of files. So it mixes the lines of those who do not take turns.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::document::LINE_BYTES_MAX;
use crate::{Result, complain};

/// How many hosts it serves at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 16;

/// A running printer. Its threads end with the process.
pub(crate) struct Printer {
    address: SocketAddr,
    head: JoinHandle<io::Result<()>>,
}

enum Message {
    Line(Vec<u8>),
    /// All lines of a connection are printed once this is reached; dropping the stream says so.
    End(TcpStream),
}

impl Printer {
    /// Listens on `address`, and prints to a new file at `output`, `line_time` a line.
    pub(crate) fn start(address: SocketAddr, output: &Path, line_time: Duration) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let paper = File::create(output)
            .map_err(|error| format!("cannot write to {}: {error}", output.display()))?;
        let address = listener.local_addr()?;
        // Without a buffer, blocked senders are served in the order in which they came.
        let (sender, lines) = bounded(0);
        let listener = Arc::new(listener);
        for _ in 0..CONNECTIONS_MAX {
            let (listener, sender) = (listener.clone(), sender.clone());
            thread::spawn(move || accept(&listener, &sender));
        }
        let head = thread::spawn(move || print(paper, &lines, line_time));
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

fn accept(listener: &TcpListener, sender: &Sender<Message>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = receive(stream, sender) {
                    complain(format_args!("printer: {error}"));
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

fn receive(stream: TcpStream, sender: &Sender<Message>) -> io::Result<()> {
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
            return sender.send(Message::End(reader.into_inner())).map_err(gone);
        }
        sender.send(Message::Line(line)).map_err(gone)?;
    }
}

fn print(mut paper: File, lines: &Receiver<Message>, line_time: Duration) -> io::Result<()> {
    for message in lines {
        match message {
            Message::Line(line) => {
                paper.write_all(&line)?;
                thread::sleep(line_time);
            }
            Message::End(stream) => drop(stream),
        }
    }
    Ok(())
}
