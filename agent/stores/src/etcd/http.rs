//! HTTP/1.1, as much of it as etcd's gateway speaks: requests with a body, and replies, piece by piece.

use std::fmt;

use zeroize::Zeroizing;

/// A reply's head, and what follows a body, is no longer than this. etcd's have some 400 bytes.
const LONGEST_HEAD: usize = 16 << 10;
/// And has at most so many lines.
const MOST_HEADERS: usize = 64;
/// The line before a chunk is no longer than this.
const LONGEST_CHUNK_LINE: usize = 1 << 10;

/// Why what arrived is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not HTTP/1.1.
    NotHttp,
    /// Its head is too long.
    LongHead,
    /// It does not say how long it is, or says two things.
    Length,
    /// A chunk is not as it should be.
    Chunk,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHttp => {
                "what answers there does not speak HTTP/1.1. Is it a port for gRPC alone? With \
                 --listen-client-http-urls the gateway is at those"
            }
            Self::LongHead => "the head of a reply is too long",
            Self::Length => "a reply does not say how long it is",
            Self::Chunk => "a chunk of a reply is not as HTTP/1.1 has it",
        })
    }
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Its head.
    Head {
        /// The status.
        status: u16,
        /// Whether the connection is over after this reply.
        closes: bool,
    },
    /// Some of its body.
    Data(Vec<u8>),
    /// It is complete.
    End,
}

/// Takes replies apart as their bytes arrive.
#[derive(Debug, Default)]
pub(super) struct Reader {
    unread: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Head,
    /// So much of the body is to come.
    Body(u64),
    /// The line before a chunk.
    ChunkLine,
    /// So much of a chunk is to come.
    Chunk(u64),
    /// The end of the line after a chunk.
    ChunkEnd,
    /// What follows the last chunk.
    Trailers,
}

impl Reader {
    /// These bytes have arrived. All pieces are to be taken before the next do.
    pub(super) fn arrived(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Whether it is between two replies, and nothing of the next one has arrived.
    pub(super) fn is_between(&self) -> bool {
        self.stage == Stage::Head && self.unread.is_empty()
    }

    /// The next piece; `None` if more must arrive first.
    ///
    /// # Errors
    /// If it is no reply. Nothing that follows means anything.
    pub(super) fn piece(&mut self) -> Result<Option<Piece>, Fault> {
        loop {
            match self.stage {
                Stage::Head => {
                    let Some(head) = self.head()? else {
                        return Ok(None);
                    };
                    // What is only on the way, as `100 Continue`, is no reply.
                    if let Some(head) = head {
                        return Ok(Some(head));
                    }
                }
                Stage::Body(0) => {
                    self.stage = Stage::Head;
                    return Ok(Some(Piece::End));
                }
                Stage::Body(left) => return Ok(self.data(left, Stage::Body)),
                Stage::Chunk(0) => self.stage = Stage::ChunkEnd,
                Stage::Chunk(left) => return Ok(self.data(left, Stage::Chunk)),
                Stage::ChunkLine => {
                    match httparse::parse_chunk_size(&self.unread) {
                        Ok(httparse::Status::Complete((used, size))) => {
                            self.unread.drain(..used);
                            self.stage = match size {
                                0 => Stage::Trailers,
                                size => Stage::Chunk(size),
                            };
                        }
                        Ok(httparse::Status::Partial)
                            if self.unread.len() <= LONGEST_CHUNK_LINE =>
                        {
                            return Ok(None);
                        }
                        Ok(httparse::Status::Partial) | Err(_) => return Err(Fault::Chunk),
                    };
                }
                Stage::ChunkEnd => {
                    if self.unread.len() < 2 {
                        return Ok(None);
                    }
                    if !self.unread.starts_with(b"\r\n") {
                        return Err(Fault::Chunk);
                    }
                    self.unread.drain(..2);
                    self.stage = Stage::ChunkLine;
                }
                Stage::Trailers => {
                    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
                    match httparse::parse_headers(&self.unread, &mut headers) {
                        Ok(httparse::Status::Complete((used, _))) => {
                            self.unread.drain(..used);
                            self.stage = Stage::Head;
                            return Ok(Some(Piece::End));
                        }
                        Ok(httparse::Status::Partial) if self.unread.len() <= LONGEST_HEAD => {
                            return Ok(None);
                        }
                        Ok(httparse::Status::Partial) => return Err(Fault::LongHead),
                        Err(_) => return Err(Fault::Chunk),
                    }
                }
            }
        }
    }

    fn data(&mut self, left: u64, stage: fn(u64) -> Stage) -> Option<Piece> {
        let have = usize::try_from(left).unwrap_or(usize::MAX);
        let have = have.min(self.unread.len());
        if have == 0 {
            return None;
        }
        self.stage = stage(left - have as u64);
        Some(Piece::Data(self.unread.drain(..have).collect()))
    }

    /// `None` if more must arrive, and `Some(None)` if what came was no reply yet.
    fn head(&mut self) -> Result<Option<Option<Piece>>, Fault> {
        if self.unread.is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let used = match response.parse(&self.unread) {
            Ok(httparse::Status::Complete(used)) if used <= LONGEST_HEAD => used,
            Ok(httparse::Status::Partial) if self.unread.len() <= LONGEST_HEAD => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Fault::LongHead),
            Err(_) => return Err(Fault::NotHttp),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Err(Fault::NotHttp);
        };
        let body = Body::of(response.headers)?;
        self.unread.drain(..used);
        if status < 200 {
            // Nobody asked for another protocol.
            return if status == 101 {
                Err(Fault::NotHttp)
            } else {
                Ok(Some(None))
            };
        }
        self.stage = match body {
            _ if status == 204 || status == 304 => Stage::Body(0),
            Body {
                length: Some(length),
                is_chunked: false,
                ..
            } => Stage::Body(length),
            Body {
                length: None,
                is_chunked: true,
                ..
            } => Stage::ChunkLine,
            _ => return Err(Fault::Length),
        };
        let closes = body.closes || version == 0;
        Ok(Some(Some(Piece::Head { status, closes })))
    }
}

/// What a head says of its body.
#[derive(Default)]
struct Body {
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
}

impl Body {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, Fault> {
        let mut body = Self::default();
        for header in headers {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("content-length") {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
                let length = digits.and_then(|value| value.parse().ok());
                let length = length.ok_or(Fault::Length)?;
                if body.length.is_some_and(|before| before != length) {
                    return Err(Fault::Length);
                }
                body.length = Some(length);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if body.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Fault::Length);
                }
                body.is_chunked = true;
            } else if header.name.eq_ignore_ascii_case("connection") {
                let mut words = value.split(|byte| *byte == b',');
                body.closes |= words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
        }
        Ok(body)
    }
}

/// A request, with a body if it is a `POST`. `host` and `path` are as they are in URLs.
pub(super) fn request(
    path: &str,
    host: &str,
    token: Option<&str>,
    body: Option<&[u8]>,
) -> Zeroizing<Vec<u8>> {
    // Long enough to stay where it is: a password may be in it, and what is left behind is not cleared.
    let length = path.len() + host.len() + token.map_or(0, str::len);
    let length = 256 + length + body.map_or(0, <[u8]>::len);
    let mut bytes = Zeroizing::new(Vec::with_capacity(length));
    let method = if body.is_some() { "POST" } else { "GET" };
    bytes.extend_from_slice(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n").as_bytes());
    if let Some(token) = token {
        bytes.extend_from_slice(b"Authorization: ");
        bytes.extend_from_slice(token.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    if let Some(body) = body {
        let length = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        bytes.extend_from_slice(length.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that `bytes` say when so many arrive at once.
    fn pieces(bytes: &[u8], step: usize) -> Result<Vec<Piece>, Fault> {
        let mut reader = Reader::default();
        let mut found: Vec<Piece> = vec![];
        for part in bytes.chunks(step) {
            reader.arrived(part);
            while let Some(piece) = reader.piece()? {
                match (found.last_mut(), piece) {
                    (Some(Piece::Data(before)), Piece::Data(more)) => before.extend(more),
                    (_, piece) => found.push(piece),
                }
            }
        }
        Ok(found)
    }

    const REPLIES: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}\
        HTTP/1.1 412 Precondition Failed\r\nTrailer: Grpc-Trailer-Content-Type\r\n\
        Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nb\r\n, our world\r\n0\r\n\
        Grpc-Trailer-Content-Type: application/grpc\r\n\r\n\
        HTTP/1.1 204 No Content\r\nConnection: Keep-Alive, Close\r\n\r\n\
        HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n";

    #[test]
    fn replies_are_the_same_however_their_bytes_arrive() {
        let head = |status, closes| Piece::Head { status, closes };
        let data = |text: &[u8]| Piece::Data(text.to_vec());
        let all = [
            head(200, false),
            data(b"{}"),
            Piece::End,
            head(412, false),
            data(b"hello, our world"),
            Piece::End,
            head(204, true),
            Piece::End,
            head(500, false),
            Piece::End,
        ];
        for step in 1..=REPLIES.len() {
            assert_eq!(pieces(REPLIES, step).unwrap(), all, "{step}");
        }
    }

    #[test]
    fn what_is_no_reply_is_a_fault() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(LONGEST_HEAD));
        let many = format!("HTTP/1.1 200 OK\r\n{}", "A: a\r\n".repeat(MOST_HEADERS + 1));
        let line = "1".repeat(LONGEST_CHUNK_LINE + 1);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (text, fault) in [
            ("\x15\x03\x01\x00\x02\x02\x16", Fault::NotHttp),
            ("\0\0\x12\x04\0\0\0\0\0", Fault::NotHttp),
            ("SSH-2.0-OpenSSH\r\n", Fault::NotHttp),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Fault::NotHttp),
            (&long, Fault::LongHead),
            (&many, Fault::LongHead),
            ("HTTP/1.1 200 OK\r\n\r\n", Fault::Length),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
                Fault::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                Fault::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                Fault::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Fault::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                Fault::Length,
            ),
            (&format!("{chunked}{line}"), Fault::Chunk),
            (&format!("{chunked}x\r\n"), Fault::Chunk),
            (&format!("{chunked}-1\r\n"), Fault::Chunk),
            (&format!("{chunked}1\r\nab\r\n"), Fault::Chunk),
            (
                &format!("{chunked}0\r\n{}", "A: a\r\n".repeat(9000)),
                Fault::Chunk,
            ),
        ] {
            for step in [1, 7, text.len()] {
                assert_eq!(
                    pieces(text.as_bytes(), step),
                    Err(fault),
                    "{step} {text:.60}"
                );
            }
        }
    }

    #[test]
    fn requests_have_what_they_need() {
        let request = request("/v3/kv/txn", "a:1", Some("t.1"), Some(b"{}"));
        let text = String::from_utf8(request.to_vec()).unwrap();
        assert_eq!(
            text,
            "POST /v3/kv/txn HTTP/1.1\r\nHost: a:1\r\nAuthorization: t.1\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        );
    }
}
