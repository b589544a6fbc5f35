//! What is printed: a banner line that names the file and the fence, and the file's lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::check::BANNER;

/// How much of a line goes into one message: a longer line is sent in pieces.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// One file on its way to the printer. It is read while it is printed, never kept as a whole.
pub(crate) struct Document {
    /// The job's title: the file's name and the fence.
    pub(crate) title: String,
    text: Box<dyn BufRead + Send>,
}

impl Document {
    /// The file of that name, to be printed by the holder of `fence`.
    pub(crate) fn new(name: &str, file: File, fence: Option<u64>) -> Self {
        let title = match fence {
            Some(fence) => format!("{name}, fence {fence}"),
            None => format!("{name}, no fence"),
        };
        let banner = Cursor::new(format!("{BANNER}{title}\n"));
        Self {
            title,
            text: Box::new(banner.chain(BufReader::new(file))),
        }
    }

    /// The next line with its newline, or `None` at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.text
            .by_ref()
            .take(LINE_BYTES_MAX as u64)
            .read_until(b'\n', &mut line)?;
        Ok((!line.is_empty()).then_some(line))
    }

    /// The rest as a stream that hands out at most one line a time.
    #[cfg(feature = "ipp")]
    pub(crate) fn into_stream(self) -> impl Read + Send + 'static {
        LineStream(self.text)
    }
}

#[cfg(feature = "ipp")]
struct LineStream(Box<dyn BufRead + Send>);

#[cfg(feature = "ipp")]
impl Read for LineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let text = self.0.fill_buf()?;
        let line = text
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(text.len(), |end| end + 1);
        let length = line.min(buffer.len());
        buffer[..length].copy_from_slice(&text[..length]);
        self.0.consume(length);
        Ok(length)
    }
}
