//! The terminal that the screen is on: taken, and given back as it was, however this ends.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::termios::{InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use nix::sys::termios::{tcgetattr, tcsetattr};
use ratatui::backend::{Backend, TermionBackend};
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

/// The other screen of the terminal, so that what was on this one is there afterwards; no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// What is to be given back, while it is taken. The hook that reports a panic needs it, too.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    keys: OwnedFd,
    before: Termios,
}

/// Gives the terminal back, if it is taken. The attributes come first: they need no reader.
fn give_back() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Taken { keys, before }) = taken else {
        return;
    };
    let _ = tcsetattr(&keys, SetArg::TCSANOW, &before);
    let mut out = io::stdout().lock();
    let _ = out.write_all(LEAVE).and_then(|()| out.flush());
}

/// A panic is told where it is read: on the screen that was there before.
fn give_back_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
    });
}

pub(super) struct Screen {
    keys: OwnedFd,
    /// As it was before all of this: continued after a stop, this process finds what it had set itself.
    before: Termios,
    terminal: Terminal<TermionBackend<io::Stdout>>,
}

impl Screen {
    /// Takes the terminal. Keys come from standard input if that is one, else from the terminal that
    /// controls the session.
    pub(super) fn take() -> io::Result<Self> {
        let keys = keyboard()?;
        let before = tcgetattr(&keys)?;
        give_back_at_panic();
        let viewport = Viewport::Fixed(area());
        let options = TerminalOptions { viewport };
        let terminal = Terminal::with_options(TermionBackend::new(io::stdout()), options)?;
        let mut screen = Self {
            keys,
            before,
            terminal,
        };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal again, and paints all of it at the next drawing.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let taken = Taken {
            keys: self.keys.try_clone()?,
            before: self.before.clone(),
        };
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        tcsetattr(&self.keys, SetArg::TCSADRAIN, &raw(&self.before))?;
        let mut out = io::stdout().lock();
        out.write_all(ENTER)?;
        out.flush()?;
        drop(out);
        self.terminal.resize(area())
    }

    /// Gives the terminal back, until [`Self::enter`].
    pub(super) fn leave(&mut self) {
        give_back();
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let area = area();
        if self.terminal.get_frame().area() != area {
            self.terminal.resize(area)?;
        }
        self.terminal.draw(draw).map(drop)
    }

    pub(super) fn keys(&self) -> &OwnedFd {
        &self.keys
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn keyboard() -> io::Result<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() {
        return input.as_fd().try_clone_to_owned();
    }
    let tty: File = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    Ok(tty.into())
}

/// Without echo, and each key at once. The keys that send signals still do: whatever else runs in the
/// foreground gets those as it would otherwise.
fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::IEXTEN);
    raw.input_flags &= !(InputFlags::IXON | InputFlags::ICRNL | InputFlags::INLCR);
    raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
    raw
}

/// A terminal that does not know its size has that of old.
fn area() -> Rect {
    let size = TermionBackend::new(io::stdout()).size();
    let size = size.ok().filter(|size| size.width > 0 && size.height > 0);
    let Size { width, height } = size.unwrap_or(Size::new(80, 24));
    Rect::new(0, 0, width, height)
}
