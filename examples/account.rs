//! Copies of one account in several processes, which all go through the same states: totally
//! ordered multicast over TCP.
//!
//! ```text
//! cargo run --example account -- 1 127.0.0.1:7101 127.0.0.1:7102 127.0.0.1:7103
//! cargo run --example account -- 2 127.0.0.1:7101 127.0.0.1:7102 127.0.0.1:7103
//! cargo run --example account -- 3 127.0.0.1:7101 127.0.0.1:7102 127.0.0.1:7103
//! ```
//!
//! Each takes updates from its standard input, a line each: `+100`, `-20` or `+1%`. Each prints all
//! updates of all processes and the balance after each, in cents and beginning with 100000: the
//! same lines everywhere. It ends when the input of all has ended. Who crashes stops the others,
//! since nothing is delivered that somebody lacks; to go on without it takes another view, and
//! something that decides on views: see `distlock::multicast`.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use clap::Parser;
use distlock::NodeId;
use distlock::multicast::{Epoch, Install, Message, MulticastError, TotalOrder};
use serde::{Deserialize, Serialize};

/// Copies of one account in several processes, which all go through the same states.
#[derive(Debug, Parser)]
struct Options {
    /// Which of the addresses is this process's, from 1
    id: u16,
    /// Where the processes listen, the same list for all
    #[arg(required = true)]
    addresses: Vec<String>,
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How often, and after what time each, a process that does not listen yet is tried again.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);
/// The last line that a process sends: it has delivered everything, and ends.
const FAREWELL: &str = "";
/// How many updates of one process may be under way.
const WINDOW: usize = 64;

/// What is multicast.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Word {
    Update(Update),
    /// The sender's input has ended.
    End,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Update {
    Add(i64),
    Percent(i64),
}

/// What happens to a process.
enum Input {
    Line(Update),
    EndOfLines,
    From(NodeId, Message<Word>),
    /// A connection ended.
    Gone(NodeId),
}

fn main() -> Result<()> {
    let options = Options::parse();
    let members: Vec<_> = (1..=u16::try_from(options.addresses.len())?)
        .filter_map(NodeId::new)
        .collect();
    let me = NodeId::new(options.id).filter(|me| members.contains(me));
    let me = me.ok_or("ID is the place of this process's address in the list, from 1")?;
    let (sender, inputs) = mpsc::channel();
    let listener = TcpListener::bind(&options.addresses[usize::from(options.id) - 1])?;
    let others = members.len() - 1;
    {
        let sender = sender.clone();
        thread::spawn(move || accept(&listener, others, &sender));
    }
    let mut streams = Vec::new();
    for (address, _) in options
        .addresses
        .iter()
        .zip(&members)
        .filter(|(_, to)| **to != me)
    {
        streams.push(greet(address, me)?);
    }
    // Only now: whoever has sent something is connected with everybody.
    thread::spawn(move || read_lines(&sender));

    let mut copy = Copy::new(me, &members)?;
    while copy.ended < members.len() {
        copy.take(inputs.recv()?)?;
        // What is delivered makes room for more to say, and alone what is said is delivered at
        // once.
        loop {
            copy.deliver()?;
            let mut messages = copy.say()?;
            messages.extend(copy.order.acknowledge());
            if messages.is_empty() {
                break;
            }
            for message in messages {
                send(&mut streams, &serde_json::to_string(&message)?);
            }
        }
    }
    send(&mut streams, FAREWELL);
    Ok(())
}

/// Sends a line to all. Who does not take it any more is gone, which its own connection tells.
fn send(streams: &mut [TcpStream], line: &str) {
    for stream in streams {
        let _ = stream.write_all(format!("{line}\n").as_bytes());
    }
}

/// Connects with another process, and says who calls.
fn greet(address: &str, me: NodeId) -> Result<TcpStream> {
    for _ in 0..TRIES {
        if let Ok(mut stream) = TcpStream::connect(address) {
            writeln!(stream, "{me}")?;
            return Ok(stream);
        }
        thread::sleep(PAUSE);
    }
    Err(format!("nobody listens at {address}").into())
}

/// Takes in what the other processes say.
fn accept(listener: &TcpListener, others: usize, sender: &Sender<Input>) {
    for stream in listener.incoming().flatten().take(others) {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut lines = BufReader::new(stream).lines().map_while(io::Result::ok);
            let from = lines.next().and_then(|id| NodeId::new(id.parse().ok()?));
            let Some(from) = from else { return };
            for line in lines {
                if line == FAREWELL {
                    return;
                }
                let Ok(message) = serde_json::from_str(&line) else {
                    break;
                };
                if sender.send(Input::From(from, message)).is_err() {
                    return;
                }
            }
            // Nobody is left to tell if the process is about to end.
            let _ = sender.send(Input::Gone(from));
        });
    }
}

fn read_lines(sender: &Sender<Input>) {
    for line in io::stdin().lines().map_while(io::Result::ok) {
        match line.parse() {
            Ok(update) => {
                if sender.send(Input::Line(update)).is_err() {
                    return;
                }
            }
            Err(error) => eprintln!("account: {line:?}: {error}"),
        }
    }
    let _ = sender.send(Input::EndOfLines);
}

/// One process's copy of the account.
struct Copy {
    order: TotalOrder<Word>,
    /// What was read and not multicast yet.
    pending: VecDeque<Word>,
    balance: i64,
    /// How many processes' input has ended.
    ended: usize,
}

impl Copy {
    /// All begin with nothing, so each can make the first view by itself.
    fn new(me: NodeId, members: &[NodeId]) -> Result<Self> {
        let first = Epoch::ZERO.next().ok_or("there are many epochs")?;
        let blank = |node: &NodeId| TotalOrder::new(*node, WINDOW).freeze(first);
        let blanks: Vec<_> = members
            .iter()
            .map(blank)
            .collect::<std::result::Result<_, _>>()?;
        let view = Install::new(first, members.to_vec(), blanks)?;
        let mut order = TotalOrder::new(me, WINDOW);
        order.install(&view)?;
        Ok(Self {
            order,
            pending: VecDeque::new(),
            balance: 100_000,
            ended: 0,
        })
    }

    fn take(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Line(update) => self.pending.push_back(Word::Update(update)),
            Input::EndOfLines => self.pending.push_back(Word::End),
            Input::From(node, message) => self.order.receive(node, message)?,
            Input::Gone(node) => {
                return Err(format!(
                    "process {node} is gone, and nothing is delivered without it: start all again"
                )
                .into());
            }
        }
        Ok(())
    }

    /// As much of what is to be said as may be under way.
    fn say(&mut self) -> Result<Vec<Message<Word>>> {
        let mut said = Vec::new();
        while let Some(word) = self.pending.pop_front() {
            match self.order.multicast(word) {
                Ok(message) => said.push(message),
                Err(MulticastError::Full(word)) => {
                    self.pending.push_front(word);
                    break;
                }
                Err(error) => return Err(error.to_string().into()),
            }
        }
        Ok(said)
    }

    /// Applies what has its place in the order.
    fn deliver(&mut self) -> Result<()> {
        let mut out = io::stdout().lock();
        while let Some(delivery) = self.order.deliver() {
            match delivery.payload {
                Word::Update(update) => {
                    self.balance = update.apply(self.balance);
                    let from = delivery.stamp.node;
                    writeln!(out, "{update} from {from}: {}", self.balance)?;
                }
                Word::End => self.ended += 1,
            }
        }
        Ok(())
    }
}

impl Update {
    fn apply(self, balance: i64) -> i64 {
        match self {
            Self::Add(cents) => balance.saturating_add(cents),
            Self::Percent(percent) => balance.saturating_add(balance / 100 * percent),
        }
    }
}

impl FromStr for Update {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (number, percent) = match text.strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number = number
            .parse()
            .map_err(|_| "an update is +100, -20 or +1%")?;
        Ok(if percent {
            Self::Percent(number)
        } else {
            Self::Add(number)
        })
    }
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(cents) => write!(f, "{cents:+}"),
            Self::Percent(percent) => write!(f, "{percent:+}%"),
        }
    }
}
