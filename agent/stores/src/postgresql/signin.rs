//! Signing in: who asks, and the proof.
//!
//! SCRAM-SHA-256 shows the password to nobody, and proves that the server knows it too. In clear it is
//! sent only where TLS has shown who gets it. MD5 is refused: whoever hears one sign-in can try passwords
//! offline at great speed, and whoever has read the server's files needs no password; PostgreSQL itself
//! deprecates it ("password authentication"). Channel binding is left out: a certificate that was checked
//! against an authority says as much.

use std::fmt;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::wire::{ServerError, nonsense};
use crate::StoreOptions;

/// One sign-in.
#[derive(Default)]
pub(super) struct SignIn {
    scram: Option<ScramSha256>,
    /// Whether the server has proved that it knows the password.
    is_proved: bool,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignIn")
    }
}

/// How far a sign-in is.
pub(super) enum Step {
    /// This is to be sent.
    Send(Vec<u8>),
    /// The server has let the client in.
    Done,
    /// This has nothing to do with it.
    Nothing,
}

/// What a connection begins with. No more parameters than poolers know.
///
/// # Errors
/// If nobody is named.
pub(super) fn startup(options: &StoreOptions) -> Result<Vec<u8>, String> {
    let user = options.user.as_deref();
    let user = user.ok_or("no user is named: write postgresql://USER@HOST/DATABASE")?;
    // As everywhere, the database is called like the user if nothing is said.
    let database = options.database.as_deref().unwrap_or(user);
    let mut bytes = BytesMut::new();
    let parameters = [
        ("user", user),
        ("database", database),
        ("client_encoding", "UTF8"),
        ("application_name", "distlock"),
    ];
    frontend::startup_message(parameters, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.to_vec())
}

/// Asks for TLS.
pub(super) fn ask_tls() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frontend::ssl_request(&mut bytes);
    bytes.to_vec()
}

impl SignIn {
    /// What follows from a message of the server.
    ///
    /// # Errors
    /// Why the client is not let in, or does not want to be.
    pub(super) fn message(
        &mut self,
        message: &Message,
        options: &StoreOptions,
        is_sealed: bool,
    ) -> Result<Step, String> {
        let password = || {
            let password = options.password.as_ref().map(|it| it.as_bytes());
            password.ok_or(
                "the server wants a password, and there is none: name its file by password_file",
            )
        };
        let mut bytes = BytesMut::new();
        match message {
            Message::AuthenticationOk if self.scram.is_some() && !self.is_proved => {
                return Err("the server did not prove that it knows the password".to_owned());
            }
            Message::AuthenticationOk => return Ok(Step::Done),
            Message::AuthenticationSasl(body) => {
                let mut mechanisms = body.mechanisms();
                let found = mechanisms.any(|mechanism| Ok(mechanism == SCRAM_SHA_256));
                if !found.map_err(|error| nonsense(&error))? {
                    return Err(other("something else than SCRAM-SHA-256"));
                }
                let scram = ScramSha256::new(password()?, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut bytes)
                    .map_err(|error| error.to_string())?;
                self.scram = Some(scram);
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_turn)?;
                scram
                    .update(body.data())
                    .map_err(|error| scrammed(&error))?;
                frontend::sasl_response(scram.message(), &mut bytes)
                    .map_err(|error| error.to_string())?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let scram = self.scram.as_mut().ok_or_else(out_of_turn)?;
                scram
                    .finish(body.data())
                    .map_err(|error| scrammed(&error))?;
                self.is_proved = true;
                return Ok(Step::Nothing);
            }
            Message::AuthenticationCleartextPassword if is_sealed => {
                frontend::password_message(password()?, &mut bytes)
                    .map_err(|error| error.to_string())?;
            }
            Message::AuthenticationCleartextPassword => {
                return Err(
                    "the server wants the password in clear, which it gets over TLS only: write \
                     postgresqls://, or scram-sha-256 in its pg_hba.conf"
                        .to_owned(),
                );
            }
            Message::AuthenticationMd5Password(_) => {
                return Err(
                    "the server wants the password by MD5, which is not safe: write \
                     scram-sha-256 in its pg_hba.conf, set password_encryption to that, and set \
                     the password anew"
                        .to_owned(),
                );
            }
            Message::AuthenticationGss | Message::AuthenticationGssContinue(_) => {
                return Err(other("GSSAPI"));
            }
            Message::AuthenticationSspi => return Err(other("SSPI")),
            Message::AuthenticationKerberosV5 | Message::AuthenticationScmCredential => {
                return Err(other("a way of signing in that is no more"));
            }
            Message::ErrorResponse(body) => {
                let error = ServerError::read(body.fields())?;
                return Err(refused(&error, options));
            }
            Message::NoticeResponse(_) | Message::ParameterStatus(_) => return Ok(Step::Nothing),
            _ => return Err(out_of_turn()),
        }
        Ok(Step::Send(bytes.to_vec()))
    }
}

fn other(way: &str) -> String {
    format!("the server wants {way}: distlock signs in by SCRAM-SHA-256, or by a certificate")
}

fn out_of_turn() -> String {
    nonsense(&"it speaks out of turn")
}

fn scrammed(error: &std::io::Error) -> String {
    format!("signing in by SCRAM-SHA-256 failed: {error}")
}

/// Why the server does not let the client in.
fn refused(error: &ServerError, options: &StoreOptions) -> String {
    match error.code.as_str() {
        "28P01" => {
            let user = options.user.as_deref().unwrap_or_default();
            format!("the password of {user} is wrong: {error}")
        }
        "28000" => format!("the server does not let the client in: {error}"),
        _ => error.to_string(),
    }
}
