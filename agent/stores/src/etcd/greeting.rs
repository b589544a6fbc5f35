//! What is found out before operations are taken: who answers, whether it is let in, and whether it can serve.

use distlock_protocol::Time;
use distlock_protocol::ledger::{StoreEvent, StoreFacts, StreamId};

use super::errors::{Meaning, meaning, shown};
use super::json::{self, Headed, Header, Request, ServerVersion, Status};
use super::wire::Broken;
use super::{Etcd, Job, Link};

/// The oldest version whose gateway is at `/v3/`.
const OLDEST: (u64, u64) = (3, 4);

/// How far it has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Whether it was asked for a token, or there are no users.
    has_signed_in: bool,
    /// The cluster's id, when it is known.
    cluster: Option<u64>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// For a token.
    SignIn,
    /// Which cluster it is, and which version.
    Status,
    /// For a register below the prefix: a read that a majority takes part in.
    Probe,
    /// Which version it is, if it has no gateway.
    Version,
}

impl Etcd {
    /// Asks for what is not yet known.
    pub(super) fn greet(&mut self, now: Time, stream: StreamId, greeting: Greeting) {
        self.link = Link::Greeting(greeting);
        let needs_token = self.user.is_some() && self.token.text.is_none();
        let step = if needs_token && !greeting.has_signed_in {
            Step::SignIn
        } else if greeting.cluster.is_none() {
            Step::Status
        } else {
            Step::Probe
        };
        self.ask(now, stream, step);
    }

    fn ask(&mut self, now: Time, stream: StreamId, step: Step) {
        let request = match step {
            Step::SignIn => {
                // A token that does not count would only be refused.
                self.token.text = None;
                self.credentials()
            }
            Step::Status => Request::status(),
            Step::Probe => Request::probe(&self.prefix),
            Step::Version => Request::version(),
        };
        self.send(now, stream, &request, Job::Greet(step));
    }

    fn credentials(&self) -> Request {
        let user = self.user.as_deref().unwrap_or_default();
        let password = self.password.as_ref().map_or("", |password| password);
        Request::authenticate(user, password)
    }

    /// What was asked is answered.
    pub(super) fn greeted(
        &mut self,
        now: Time,
        stream: StreamId,
        step: Step,
        (status, body): (u16, &[u8]),
    ) {
        let Link::Greeting(mut greeting) = self.link else {
            return;
        };
        let outcome = match (step, status) {
            (Step::Version, _) => Err(no_gateway(status, body)),
            (_, 200) => self.learn(&mut greeting, step, body),
            _ => match meaning(status, body) {
                Meaning::NoPath => return self.ask(now, stream, Step::Version),
                Meaning::NoUsers if step == Step::SignIn => {
                    greeting.has_signed_in = true;
                    Ok(())
                }
                Meaning::SignIn if self.user.is_some() && !greeting.has_signed_in => {
                    return self.ask(now, stream, Step::SignIn);
                }
                other => Err(self.why_not(other)),
            },
        };
        match outcome {
            Err(why) => self.fail(now, &why),
            Ok(()) if step == Step::Probe => {
                self.link = Link::Up;
                self.hosts.worked();
                if let Some(connection) = self.connections.get_mut(&stream) {
                    connection.is_known = true;
                }
                let identity = self.store.identity();
                self.event(StoreEvent::Up(StoreFacts {
                    may_forget: false,
                    doubts: Vec::new(),
                    identity,
                }));
                self.watch_if_wanted(now);
            }
            Ok(()) => self.greet(now, stream, greeting),
        }
    }

    /// What answers on another connection has said which store it is, after that had `revision`. An operation on
    /// one that was restored from a backup, or is another, might find the version that it expects there.
    pub(super) fn checked(
        &mut self,
        now: Time,
        stream: StreamId,
        revision: u64,
        (status, body): (u16, &[u8]),
    ) {
        let headed = (status == 200).then(|| json::parse::<Headed>(body));
        match headed.flatten() {
            Some(Headed { header })
                if self.store.is_same(header) && header.revision.0 >= revision =>
            {
                if let Some(connection) = self.connections.get_mut(&stream) {
                    connection.is_known = true;
                }
                self.dispatch(now);
            }
            Some(_) => self.fail(now, "another store answers at the same address"),
            // Operations find out why, on those that are there.
            None => self.close_spare(now, stream),
        }
    }

    /// Of a good answer.
    fn learn(&mut self, greeting: &mut Greeting, step: Step, body: &[u8]) -> Result<(), String> {
        let strange = || {
            format!(
                "what answers there is no etcd: {}",
                shown(&String::from_utf8_lossy(body))
            )
        };
        match step {
            Step::SignIn => {
                self.token.text = Some(json::token(body).ok_or_else(strange)?);
                self.token.number += 1;
                greeting.has_signed_in = true;
            }
            Step::Status => {
                let status: Status = json::parse(body).ok_or_else(strange)?;
                if status.header.cluster_id.0 == 0 {
                    return Err(strange());
                }
                check_version(&status.version)?;
                if status.leader.0 == 0 {
                    return Err(
                        "that member knows of no leader: it is cut off from the others, or \
                                most of them are down"
                            .to_owned(),
                    );
                }
                greeting.cluster = Some(status.header.cluster_id.0);
            }
            Step::Probe => {
                let headed: Headed = json::parse(body).ok_or_else(strange)?;
                if greeting.cluster != Some(headed.header.cluster_id.0) {
                    return Err("two clusters answer at the same address".to_owned());
                }
                self.store.greeted(headed.header);
            }
            Step::Version => {}
        }
        Ok(())
    }

    /// Why what was asked is not answered, in words for who can change it.
    fn why_not(&self, meaning: Meaning) -> String {
        match (meaning, &self.user) {
            (Meaning::Refused(_), Some(user)) => format!(
                "etcd does not let the user {user} read below {:?}: give its role the permission \
                 readwrite for that prefix",
                self.prefix
            ),
            (Meaning::SignIn | Meaning::Refused(_), None) => {
                "etcd's users are switched on, and none is named here: name one, and its password's file"
                    .to_owned()
            }
            (Meaning::SignIn, Some(_)) => {
                "etcd does not accept the token that it gave".to_owned()
            }
            (Meaning::WrongPassword, _) => {
                "etcd does not know this user, or the password is another one".to_owned()
            }
            (Meaning::NoUsers, _) => "etcd's users are switched off".to_owned(),
            (Meaning::NoPath, _) => no_gateway(404, b""),
            (Meaning::Busy, _) => "etcd has too much to do".to_owned(),
            (Meaning::Unknown(why) | Meaning::Full(why), _) => why,
        }
    }

    /// Signs in on a connection that is idle, as the token counts no more.
    pub(super) fn sign_in(&mut self, now: Time, stream: StreamId) {
        (self.token.is_wanted, self.token.is_asked_for) = (false, true);
        self.token.text = None;
        let request = self.credentials();
        self.send(now, stream, &request, Job::SignIn);
    }

    /// Whether it was let in.
    pub(super) fn signed_in(&mut self, now: Time, status: u16, body: &[u8]) {
        self.token.is_asked_for = false;
        self.token.number += 1;
        let found = if status == 200 {
            json::token(body).ok_or_else(|| "etcd gives no token".to_owned())
        } else {
            match meaning(status, body) {
                // They were switched off in the meantime.
                Meaning::NoUsers => return self.watch_if_wanted(now),
                other => Err(self.why_not(other)),
            }
        };
        match found {
            Ok(token) => {
                self.token.text = Some(token);
                self.watch_if_wanted(now);
            }
            Err(why) => self.fail(now, &why),
        }
    }

    /// Adds to what is said of a broken connection what may be meant by it.
    pub(super) fn explain(&self, stream: StreamId, broken: Broken) -> Broken {
        let connection = self.connections.get(&stream);
        let Some(connection) = connection.filter(|connection| connection.is_open) else {
            return broken;
        };
        let (Link::Greeting(greeting), Broken::Because(why)) = (self.link, &broken) else {
            return broken;
        };
        let hint = if connection.wire.is_shaking_hands() && !why.contains("certificate") {
            "if etcd speaks no TLS there, write etcd://"
        } else if self.tls.is_none() && greeting == Greeting::default() {
            "if etcd expects TLS there, write etcds://"
        } else {
            return broken;
        };
        Broken::Because(format!("{why} ({hint})"))
    }
}

/// Why there is no gateway, by what answers at `/version`.
fn no_gateway(status: u16, body: &[u8]) -> String {
    let version: Option<ServerVersion> = json::parse(body).filter(|_| status == 200);
    if let Some(version) = version
        && let Err(why) = check_version(&version.etcdserver)
    {
        return why;
    }
    "there is nothing at /v3/: if it is etcd, switch on its gRPC gateway \
     (--enable-grpc-gateway=true)"
        .to_owned()
}

fn check_version(text: &str) -> Result<(), String> {
    let mut parts = text.split(|character: char| !character.is_ascii_digit());
    let mut number = || parts.next()?.parse::<u64>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
        (Some(_), Some(_)) => Err(format!(
            "it is etcd {}, and at least 3.4 is needed",
            shown(text)
        )),
        _ => Err(format!("{:?} is no version of etcd", shown(text))),
    }
}

impl super::Seen {
    /// Another connection shows this: which store it is, and how far it has got. The revision is that of a
    /// linearizable read, which is no less than any that was answered before, unless it has gone back.
    fn greeted(&mut self, header: Header) {
        let is_same = self.cluster == Some(header.cluster_id.0);
        if is_same && header.revision.0 < self.revision {
            self.returns += 1;
        }
        self.cluster = Some(header.cluster_id.0);
        self.revision = header.revision.0;
    }

    /// Whether a message is of the same store.
    pub(super) fn is_same(&self, header: Header) -> bool {
        self.cluster == Some(header.cluster_id.0)
    }

    /// A reply of the present connection: whether it is of the same store.
    pub(super) fn answered(&mut self, header: Header) -> bool {
        let is_same = self.is_same(header);
        if is_same {
            self.revision = self.revision.max(header.revision.0);
        }
        is_same
    }

    fn identity(&self) -> String {
        let cluster = self.cluster.unwrap_or_default();
        match self.returns {
            0 => format!("etcd cluster {cluster:x}"),
            returns => format!("etcd cluster {cluster:x}, gone back {returns} times"),
        }
    }
}
