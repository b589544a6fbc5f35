//! What the server says, message by message.

use std::fmt;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Header, Message};

/// The longest message that is taken from a server: twice the longest value that is written. A length is
/// believed before the bytes are there, so it must not be any.
pub(super) const MAX_MESSAGE: usize = 8 << 20;

/// How much of what a server says in words is passed on.
const MAX_TEXT: usize = 400;

/// Bytes that arrived, until a message is complete.
#[derive(Debug, Default)]
pub(super) struct Inbox(BytesMut);

impl Inbox {
    /// These bytes have arrived, after those before.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message; `None` if more is to come first.
    ///
    /// # Errors
    /// If it is none of PostgreSQL's, or too long.
    pub(super) fn next(&mut self) -> Result<Option<Message>, String> {
        let header = Header::parse(&self.0);
        let Some(header) = header.map_err(|error| nonsense(&error))? else {
            return Ok(None);
        };
        let length = usize::try_from(header.len()).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            return Err(format!(
                "the server says something of {length} bytes: at most {MAX_MESSAGE} are taken"
            ));
        }
        Message::parse(&mut self.0).map_err(|error| nonsense(&error))
    }

    /// The byte that answers a request for TLS, which is no message. Nothing may follow it before TLS has
    /// begun: whoever puts something there wants it to be taken for what came sealed (CVE-2021-23222).
    ///
    /// # Errors
    /// If there is more.
    pub(super) fn only_byte(&mut self) -> Result<Option<u8>, String> {
        match self.0[..] {
            [] => Ok(None),
            [byte] => {
                self.0.clear();
                Ok(Some(byte))
            }
            // An old server's error is a message.
            [b'E', ..] => Ok(Some(b'E')),
            _ => Err("something was put into the connection before TLS began".to_owned()),
        }
    }
}

/// What is said of something that is no message.
pub(super) fn nonsense(error: &dyn fmt::Display) -> String {
    format!("what answers there is no PostgreSQL: {error}")
}

/// The fields of a row, as text; `None` is NULL.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// Takes a row apart.
///
/// # Errors
/// If its fields are not where it says.
pub(super) fn row(body: &DataRowBody) -> Result<Row, String> {
    let mut fields = Row::new();
    let mut ranges = body.ranges();
    while let Some(range) = ranges.next().map_err(|error| nonsense(&error))? {
        let field = match range {
            None => None,
            Some(range) => {
                let bytes = body.buffer().get(range);
                let bytes = bytes.ok_or_else(|| nonsense(&"a field is not there"))?;
                Some(bytes.to_vec())
            }
        };
        fields.push(field);
    }
    Ok(fields)
}

/// What the server says of what it did not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerError {
    /// Whether the connection is over by that.
    pub(super) is_fatal: bool,
    /// SQLSTATE, five letters and digits.
    pub(super) code: String,
    /// The words.
    pub(super) text: String,
}

impl ServerError {
    pub(super) fn read(mut fields: ErrorFields<'_>) -> Result<Self, String> {
        let mut error = Self::default();
        let (mut detail, mut hint) = (String::new(), String::new());
        while let Some(field) = fields.next().map_err(|error| nonsense(&error))? {
            let text = || clean(&String::from_utf8_lossy(field.value_bytes()));
            match field.type_() {
                // `V` is never translated, `S` is.
                b'V' => error.is_fatal = matches!(field.value_bytes(), b"FATAL" | b"PANIC"),
                b'C' => error.code = text(),
                b'M' => error.text = text(),
                b'D' => detail = text(),
                b'H' => hint = text(),
                _ => {}
            }
        }
        for more in [detail, hint] {
            if !more.is_empty() {
                error.text = format!("{} ({more})", error.text);
            }
        }
        Ok(error)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.text, self.code)
    }
}

/// Words of a server, fit to be shown on a terminal.
pub(super) fn clean(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_TEXT).map(visible).collect()
}
