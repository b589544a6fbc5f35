//! One connection: from its beginning, by TLS, sign-in and what the server is, to operations and their
//! answers.
//!
//! Operations are sent one after the other without waiting, each with a `Sync` of its own, and answered in
//! that order. A pooler gets one at a time: some give the server away at the first answer (PgBouncer#759,
//! supavisor#1061).

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use distlock_protocol::Time;
use distlock_protocol::ledger::{Host, OpId, Reply};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::facts::{self, Findings};
use super::signin::{self, SignIn, Step};
use super::statements::{self, Answer, Asked, Outcome, Phrasing};
use super::wire::{Inbox, MAX_MESSAGE, ServerError, nonsense, row};
use crate::StoreOptions;
use crate::tls::Channel;

/// The most that all rows of one answer may have.
const MAX_ANSWER: usize = 8 * MAX_MESSAGE;
/// How many statements an answer has at most.
const MAX_STATEMENTS: usize = 3;
/// How many changes are remembered while an answer is on its way.
const MAX_TOLD: usize = 1000;

/// What a connection has to tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Operations are taken from now on.
    Up,
    /// An operation's answer.
    Reply(OpId, Reply),
    /// Changes are told from now on.
    Listens,
    /// Somebody else has changed that register; `None` if it is not known which.
    Told(Option<String>),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    channel: Channel,
    inbox: Inbox,
    stage: Stage,
    /// When the present stage is to be over.
    until: Time,
    /// What is to be sent.
    wire: Vec<u8>,
    /// What was sent, and not answered yet, in order.
    sent: VecDeque<Group>,
    /// What is to be sent when that is answered.
    held: VecDeque<Group>,
    /// Whether it need not wait for that.
    is_pipelined: bool,
    /// By which number the server has named itself.
    pid: Option<i32>,
    findings: Option<Findings>,
    phrasing: Phrasing,
    creates_table: bool,
    /// What was told while an answer was on its way: the ledger takes a read that is answered after a hint
    /// for one that was done after it.
    told: BTreeSet<Option<String>>,
    news: VecDeque<News>,
}

#[derive(Debug)]
enum Stage {
    /// The socket is being connected, with TLS to follow or not.
    Socket(Option<Channel>),
    /// The server was asked for TLS.
    Tls(Channel),
    /// The client signs in.
    SignIn(SignIn),
    /// The server has let the client in, and prepares.
    LetIn,
    /// It takes statements, and says what it is.
    Ready,
    /// It takes operations.
    Up,
}

/// Statements of one transaction.
#[derive(Debug)]
struct Group {
    purpose: Purpose,
    /// What is to be sent; nothing once it was.
    bytes: Vec<u8>,
    /// Until when the answer is waited for.
    until: Time,
    answer: Answer,
    /// How many bytes the answer has so far.
    size: usize,
}

#[derive(Debug)]
enum Purpose {
    CreateTable,
    Facts,
    Identity,
    Listen(bool),
    Op(OpId, Asked),
}

impl Connection {
    /// To that host, whose socket is being connected.
    ///
    /// # Errors
    /// If TLS is wanted, and no certificate can be for that host.
    pub(super) fn new(
        now: Time,
        host: &Host,
        options: &StoreOptions,
        creates_table: bool,
    ) -> Result<Self, String> {
        // As everywhere with PostgreSQL there is no TLS at a Unix socket.
        let sealed = match (&options.tls, host) {
            (Some(tls), Host::Tcp { name, .. }) => Some(Channel::sealed(tls, name)?),
            _ => None,
        };
        let patience = options.patience();
        Ok(Self {
            channel: Channel::Plain,
            inbox: Inbox::default(),
            stage: Stage::Socket(sealed),
            until: now + patience,
            wire: Vec::new(),
            sent: VecDeque::new(),
            held: VecDeque::new(),
            is_pipelined: false,
            pid: None,
            findings: None,
            phrasing: Phrasing {
                timeout: patience / 2,
                is_guarded: false,
                channel: options
                    .has_hints
                    .then(|| statements::channel(&options.group)),
                silent: format!("distlock/{}/session/", options.group),
            },
            creates_table,
            told: BTreeSet::new(),
            news: VecDeque::new(),
        })
    }

    /// Whether operations are taken.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// What the server said of itself, once operations are taken.
    pub(super) const fn findings(&self) -> Option<&Findings> {
        self.findings.as_ref()
    }

    /// What is to be sent now.
    pub(super) fn take_wire(&mut self) -> Vec<u8> {
        mem::take(&mut self.wire)
    }

    /// The next news.
    pub(super) fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When the server must have said something; `None` if nothing is asked.
    pub(super) fn deadline(&self) -> Option<Time> {
        if !matches!(self.stage, Stage::Ready | Stage::Up) {
            return Some(self.until);
        }
        // What was asked again is behind what was asked later.
        let groups = self.sent.iter().chain(&self.held);
        groups.map(|group| group.until).min()
    }

    /// The socket is connected.
    pub(super) fn begin(&mut self, now: Time, options: &StoreOptions) -> Result<(), String> {
        let Stage::Socket(sealed) = &mut self.stage else {
            return Ok(());
        };
        match sealed.take() {
            Some(sealed) => {
                self.enter(now, Stage::Tls(sealed), options);
                self.send(&signin::ask_tls())
            }
            None => self.sign_in(now, options),
        }
    }

    fn enter(&mut self, now: Time, stage: Stage, options: &StoreOptions) {
        self.stage = stage;
        self.until = now + options.patience();
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.channel.send(bytes, &mut self.wire)
    }

    fn sign_in(&mut self, now: Time, options: &StoreOptions) -> Result<(), String> {
        self.enter(now, Stage::SignIn(SignIn::default()), options);
        self.send(&signin::startup(options)?)
    }

    /// These bytes have arrived.
    ///
    /// # Errors
    /// Why the connection is of no use.
    pub(super) fn received(
        &mut self,
        now: Time,
        bytes: &[u8],
        options: &StoreOptions,
    ) -> Result<(), String> {
        let mut plain = Vec::new();
        let outcome = self.channel.receive(bytes, &mut plain, &mut self.wire);
        self.inbox.push(&plain);
        // The server's last word comes before the end of TLS.
        self.messages(now, options)?;
        outcome
    }

    fn messages(&mut self, now: Time, options: &StoreOptions) -> Result<(), String> {
        if matches!(self.stage, Stage::Tls(_)) {
            match self.inbox.only_byte()? {
                None => return Ok(()),
                Some(b'S') => {
                    let before = mem::replace(&mut self.stage, Stage::LetIn);
                    if let Stage::Tls(sealed) = before {
                        self.channel = sealed;
                    }
                    self.sign_in(now, options)?;
                    return Ok(());
                }
                Some(b'N') => {
                    return Err(
                        "the server has no TLS, and postgresqls:// wants it: set ssl = on \
                         there, or write postgresql://"
                            .to_owned(),
                    );
                }
                Some(b'E') => {}
                Some(byte) => return Err(nonsense(&format!("it answers {byte:#04x}"))),
            }
        }
        while let Some(message) = self.inbox.next()? {
            match (&mut self.stage, &message) {
                (Stage::SignIn(signs), message) => {
                    let is_sealed = matches!(self.channel, Channel::Tls(_));
                    match signs.message(message, options, is_sealed)? {
                        Step::Send(bytes) => {
                            self.until = now + options.patience();
                            self.send(&bytes)?;
                        }
                        Step::Done => self.enter(now, Stage::LetIn, options),
                        Step::Nothing => {}
                    }
                }
                (_, Message::ErrorResponse(body)) => {
                    let error = ServerError::read(body.fields())?;
                    // A fatal one, or one of nothing that was asked, ends the connection.
                    let group = self.sent.front_mut().filter(|_| !error.is_fatal);
                    let group = group.ok_or_else(|| error.to_string())?;
                    group.answer.error.get_or_insert(error);
                }
                (_, Message::NoticeResponse(_) | Message::ParameterStatus(_)) => {}
                (Stage::LetIn, Message::BackendKeyData(body)) => self.pid = Some(body.process_id()),
                (Stage::LetIn, Message::ReadyForQuery(_)) => {
                    self.enter(now, Stage::Ready, options);
                    let (purpose, bytes) = if self.creates_table {
                        let mut bytes = bytes::BytesMut::new();
                        let asked = frontend::query(statements::SCHEMA, &mut bytes);
                        asked.map_err(|error| error.to_string())?;
                        (Purpose::CreateTable, bytes.to_vec())
                    } else {
                        (Purpose::Facts, facts::ask_facts()?)
                    };
                    self.ask(purpose, bytes, now + options.patience())?;
                }
                (Stage::Ready | Stage::Up, message) => {
                    self.message(now, message, options)?;
                }
                _ => return Err(nonsense(&"it speaks out of turn")),
            }
        }
        Ok(())
    }

    /// A message of a server that takes statements.
    fn message(
        &mut self,
        now: Time,
        message: &Message,
        options: &StoreOptions,
    ) -> Result<(), String> {
        if let Message::NotificationResponse(body) = message {
            if Some(body.process_id()) != self.pid {
                let key = body.message().ok().filter(|key| !key.is_empty());
                self.told(key.map(str::to_owned));
            }
            return Ok(());
        }
        let Some(group) = self.sent.front_mut() else {
            return Err(nonsense(&"it answers what was not asked"));
        };
        let answer = &mut group.answer;
        match message {
            Message::ParseComplete
            | Message::BindComplete
            | Message::RowDescription(_)
            | Message::NoData => {}
            Message::DataRow(body) => {
                group.size += body.buffer().len();
                if group.size > MAX_ANSWER {
                    return Err(format!(
                        "an answer is too long: at most {MAX_ANSWER} bytes are taken"
                    ));
                }
                answer.rows.resize_with(answer.done + 1, Vec::new);
                answer.rows[answer.done].push(row(body)?);
            }
            Message::CommandComplete(_) if answer.done < MAX_STATEMENTS => {
                answer.rows.resize_with(answer.done + 1, Vec::new);
                answer.done += 1;
            }
            Message::ReadyForQuery(body) if body.status() == b'I' => {
                if let Some(group) = self.sent.pop_front() {
                    self.answered(now, group, options)?;
                }
                self.send_held()?;
                let told = mem::take(&mut self.told);
                self.news.extend(told.into_iter().map(News::Told));
            }
            _ => return Err(nonsense(&"it speaks out of turn")),
        }
        Ok(())
    }

    fn told(&mut self, key: Option<String>) {
        if self.sent.is_empty() {
            return self.news.push_back(News::Told(key));
        }
        let key = key.filter(|_| self.told.len() < MAX_TOLD);
        self.told.insert(key);
    }

    /// Asks an operation, and waits for its answer until then.
    ///
    /// # Errors
    /// If the connection is of no use.
    pub(super) fn submit(&mut self, id: OpId, asked: Asked, until: Time) -> Result<(), String> {
        match asked.bytes(&self.phrasing) {
            Ok(bytes) => self.ask(Purpose::Op(id, asked), bytes, until),
            Err(why) => {
                self.news.push_back(News::Reply(id, Reply::Refused(why)));
                Ok(())
            }
        }
    }

    /// Has changes told from now on, or no more, if that is possible: whether it is.
    ///
    /// # Errors
    /// If the connection is of no use.
    pub(super) fn listen(&mut self, listens: bool, until: Time) -> Result<bool, String> {
        // What is listened to belongs to a session, and a pooler gives that to others.
        let has_session = self.findings.as_ref().is_some_and(|it| !it.is_pooled);
        let channel = self.phrasing.channel.as_ref().filter(|_| has_session);
        let Some(channel) = channel else {
            return Ok(false);
        };
        let bytes = statements::listen(channel, listens)?;
        self.ask(Purpose::Listen(listens), bytes, until)?;
        Ok(true)
    }

    fn ask(&mut self, purpose: Purpose, bytes: Vec<u8>, until: Time) -> Result<(), String> {
        self.held.push_back(Group {
            purpose,
            bytes,
            until,
            answer: Answer::default(),
            size: 0,
        });
        self.send_held()
    }

    fn send_held(&mut self) -> Result<(), String> {
        while self.is_pipelined || self.sent.is_empty() {
            let Some(mut group) = self.held.pop_front() else {
                return Ok(());
            };
            let bytes = mem::take(&mut group.bytes);
            self.send(&bytes)?;
            self.sent.push_back(group);
        }
        Ok(())
    }

    /// All of a transaction's answer is there, and the transaction is over.
    fn answered(&mut self, now: Time, group: Group, options: &StoreOptions) -> Result<(), String> {
        let until = now + options.patience();
        let answer = &group.answer;
        match group.purpose {
            Purpose::CreateTable => {
                if let Some(error) = &answer.error {
                    return Err(format!("the table distlock cannot be created: {error}"));
                }
                self.ask(Purpose::Facts, facts::ask_facts()?, until)?;
            }
            Purpose::Facts => {
                self.findings = Some(Findings::read(answer, self.pid)?);
                self.ask(Purpose::Identity, facts::ask_identity()?, until)?;
            }
            Purpose::Identity => {
                if let Some(findings) = &mut self.findings {
                    let is_known = findings.identify(answer);
                    self.is_pipelined = !findings.is_pooled;
                    self.phrasing.is_guarded = findings.is_pooled && is_known;
                    self.stage = Stage::Up;
                    self.news.push_back(News::Up);
                }
            }
            // Where it is not to be had, reading finds the changes.
            Purpose::Listen(listens) if listens && answer.error.is_none() => {
                self.news.push_back(News::Listens);
            }
            Purpose::Listen(_) => {}
            Purpose::Op(id, mut asked) => {
                let guarded = self.findings.as_ref().filter(|_| self.phrasing.is_guarded);
                let identity = guarded.map(|findings| findings.identity.as_str());
                match asked.outcome(answer, identity) {
                    Outcome::Reply(reply) => self.news.push_back(News::Reply(id, reply)),
                    Outcome::Again => self.submit(id, asked, group.until)?,
                    Outcome::Broken(why) => return Err(why),
                }
            }
        }
        Ok(())
    }
}
