//! The keys of `distlock top`: from what a terminal sends to a key, and what each key does.

use super::model::Order;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
}

/// Makes keys of what a terminal sends, which may come in pieces.
///
/// By hand, since `termion::event::parse_event` panics where a sequence is incomplete, or holds a number that is
/// out of range: whatever is pasted into the terminal could end the screen.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pending: Vec<u8>,
}

/// The longest sequence that is waited for.
const MAX_SEQUENCE: usize = 16;

impl Decoder {
    /// The keys of these bytes, and of those before that meant nothing yet.
    pub(super) fn keys(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some((key, used)) = decode(&self.pending) {
            self.pending.drain(..used);
            keys.extend(key);
        }
        keys
    }

    /// Whether bytes are left that may be the beginning of a key.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing more has come: what is left was the escape key, or nothing that makes sense.
    pub(super) fn settle(&mut self) -> Option<Key> {
        let left = std::mem::take(&mut self.pending);
        (left == [ESCAPE]).then_some(Key::Escape)
    }
}

const ESCAPE: u8 = 0x1b;

/// The first key, if it is one that is known, and how many bytes it takes; `None` if more must come.
fn decode(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes {
        [] | [ESCAPE] | [ESCAPE, b'[' | b'O'] => None,
        [ESCAPE, b'[', rest @ ..] => {
            let is_final = |byte: &u8| (0x40..0x7f).contains(byte);
            let Some(end) = rest.iter().position(is_final) else {
                return (rest.len() > MAX_SEQUENCE).then_some((None, bytes.len()));
            };
            Some((sequence(&rest[..end], rest[end]), end + 3))
        }
        [ESCAPE, b'O', last, ..] => Some((sequence(&[], *last), 3)),
        [ESCAPE, ..] => Some((Some(Key::Escape), 1)),
        [b'\r' | b'\n', ..] => Some((Some(Key::Enter), 1)),
        [b'\t', ..] => Some((Some(Key::Tab), 1)),
        [0x7f | 0x08, ..] => Some((Some(Key::Backspace), 1)),
        [ascii @ ..0x80, ..] => Some((Some(Key::Char(char::from(*ascii))), 1)),
        [first, ..] => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return Some((None, 1)),
            };
            let Some(one) = bytes.get(..length) else {
                // Waits for the rest only if what is there can be its beginning.
                let is_begun = bytes[1..].iter().all(|byte| byte & 0xc0 == 0x80);
                return (!is_begun).then_some((None, 1));
            };
            let one = std::str::from_utf8(one).ok();
            match one.and_then(|one| one.chars().next()) {
                Some(c) => Some((Some(Key::Char(c)), length)),
                None => Some((None, 1)),
            }
        }
    }
}

fn sequence(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (parameters, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        (_, b'Z') => Key::BackTab,
        _ => return None,
    })
}

/// What was chosen by keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Controls {
    pub(super) order: Order,
    pub(super) is_reversed: bool,
    /// Only locks are shown whose names contain this.
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// Whether every waiter has its line.
    pub(super) shows_all: bool,
    /// How many lines of the list are above the screen.
    pub(super) offset: usize,
    /// How many lines of it there are, and how many of them the screen has room for.
    pub(super) lines: usize,
    pub(super) page: usize,
}

/// What a key asks of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// That what was chosen is shown.
    Draw,
    /// That the screen is painted anew: something else wrote on it.
    Repaint,
    Quit,
}

/// As long as a lock's name can be.
const MAX_FILTER: usize = 255;

impl Controls {
    pub(super) fn press(&mut self, key: Key) -> Asked {
        if self.is_typing {
            self.edit(key);
            return Asked::Draw;
        }
        if self.shows_help && !matches!(key, Key::Char('q')) {
            self.shows_help = false;
            return Asked::Draw;
        }
        match key {
            Key::Char('q' | 'Q') => return Asked::Quit,
            // Ctrl-L.
            Key::Char('\x0c') => return Asked::Repaint,
            Key::Char('j') | Key::Down => self.scroll_to(self.offset.saturating_add(1)),
            Key::Char('k') | Key::Up => self.scroll_to(self.offset.saturating_sub(1)),
            Key::Char(' ') | Key::PageDown => self.scroll_to(self.offset + self.step()),
            Key::Char('b') | Key::PageUp => {
                self.scroll_to(self.offset.saturating_sub(self.step()));
            }
            Key::Char('g') | Key::Home => self.scroll_to(0),
            Key::Char('G') | Key::End => self.scroll_to(usize::MAX),
            Key::Char('s') | Key::Tab => self.sort_by(1),
            Key::BackTab => self.sort_by(Order::ALL.len() - 1),
            Key::Char(digit @ '1'..='4') => {
                self.order = Order::ALL[digit as usize - '1' as usize];
                self.offset = 0;
            }
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('/') => self.is_typing = true,
            Key::Escape => self.filter.clear(),
            Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char('w') => self.shows_all = !self.shows_all,
            Key::Char('?' | 'h') => self.shows_help = true,
            _ => {}
        }
        Asked::Draw
    }

    /// The list has come to have so many lines, and the screen so much room.
    pub(super) fn fit(&mut self, lines: usize, page: usize) {
        (self.lines, self.page) = (lines, page);
        self.scroll_to(self.offset);
    }

    fn scroll_to(&mut self, offset: usize) {
        self.offset = offset.min(self.lines.saturating_sub(self.page));
    }

    /// A page, with one line of the page before.
    fn step(&self) -> usize {
        self.page.saturating_sub(1).max(1)
    }

    fn sort_by(&mut self, further: usize) {
        let all = Order::ALL;
        let at = all.iter().position(|order| *order == self.order);
        self.order = all[(at.unwrap_or(0) + further) % all.len()];
        self.offset = 0;
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            // Ctrl-U, as the terminal itself has it.
            Key::Char('\x15') => self.filter.clear(),
            Key::Char(c) if !c.is_control() && self.filter.len() + c.len_utf8() <= MAX_FILTER => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.offset = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Vec<Key> {
        Decoder::default().keys(bytes)
    }

    #[test]
    fn keys_are_told_apart() {
        let sent = b"q\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[Z\t\r\x7f\x0c";
        let keys = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::BackTab,
            Key::Tab,
            Key::Enter,
            Key::Backspace,
            Key::Char('\x0c'),
        ];
        assert_eq!(decoded(sent), keys);
        // Byte by byte they are the same.
        let mut decoder = Decoder::default();
        let one_by_one: Vec<_> = sent.iter().flat_map(|&it| decoder.keys(&[it])).collect();
        assert_eq!(one_by_one, keys);
        assert!(!decoder.is_in_doubt());
    }

    #[test]
    fn the_escape_key_is_known_when_nothing_follows() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\x1b"), []);
        assert!(decoder.is_in_doubt());
        assert_eq!(decoder.settle(), Some(Key::Escape));
        assert_eq!(decoded(b"\x1bq"), [Key::Escape, Key::Char('q')]);
        assert_eq!(decoder.keys(b"\x1b["), []);
        assert_eq!(decoder.settle(), None);
        assert!(!decoder.is_in_doubt());
    }

    #[test]
    fn text_is_utf_8_and_what_makes_no_sense_is_left_out() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.keys(b"\xc3"), []);
        assert_eq!(decoder.keys(b"\xa4"), [Key::Char('ä')]);
        assert_eq!(
            decoded(b"\xff\xc3x\xe2\x82\xac"),
            [Key::Char('x'), Key::Char('€')]
        );
        assert_eq!(decoded(b"\x1b[11~\x1b[<0;1;1Mx"), [Key::Char('x')]);
        let endless = [&b"\x1b["[..], &[b'1'; 40]].concat();
        assert_eq!(decoded(&endless), []);
    }

    #[test]
    fn the_list_is_scrolled_within_its_bounds() {
        let mut controls = Controls::default();
        controls.fit(30, 10);
        for (key, offset) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::Char('j'), 2),
            (Key::Char('k'), 1),
            (Key::PageDown, 10),
            (Key::Char('G'), 20),
            (Key::Char(' '), 20),
            (Key::PageUp, 11),
            (Key::Home, 0),
            (Key::End, 20),
        ] {
            assert_eq!(controls.press(key), Asked::Draw);
            assert_eq!(controls.offset, offset, "{key:?}");
        }
        controls.fit(12, 10);
        assert_eq!(controls.offset, 2);
        controls.fit(3, 10);
        assert_eq!(controls.offset, 0);
        controls.fit(0, 0);
        assert_eq!(controls.press(Key::PageDown), Asked::Draw);
        assert_eq!(controls.offset, 0);
    }

    #[test]
    fn the_order_is_chosen() {
        let mut controls = Controls::default();
        let orders = [Order::Name, Order::Waiters, Order::Age, Order::Heat];
        for order in orders {
            controls.press(Key::Tab);
            assert_eq!(controls.order, order);
        }
        controls.press(Key::BackTab);
        assert_eq!(controls.order, Order::Age);
        controls.press(Key::Char('2'));
        assert_eq!((controls.order, controls.is_reversed), (Order::Name, false));
        controls.press(Key::Char('r'));
        assert!(controls.is_reversed);
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared() {
        let mut controls = Controls::default();
        let typed = |controls: &mut Controls, keys: &[Key]| {
            for key in keys {
                assert_eq!(controls.press(*key), Asked::Draw);
            }
        };
        let [slash, q, p] = ['/', 'q', 'p'].map(Key::Char);
        typed(&mut controls, &[slash, q, Key::Tab, p, Key::Backspace]);
        assert_eq!((controls.filter.as_str(), controls.is_typing), ("q", true));
        typed(&mut controls, &[Key::Enter]);
        assert_eq!((controls.filter.as_str(), controls.is_typing), ("q", false));
        typed(&mut controls, &[slash, p]);
        assert_eq!(controls.filter, "qp");
        typed(&mut controls, &[Key::Escape]);
        assert_eq!((controls.filter.as_str(), controls.is_typing), ("", false));
        typed(&mut controls, &[slash]);
        typed(&mut controls, &[Key::Char('x'); 300]);
        assert_eq!(controls.filter.len(), MAX_FILTER);
    }

    #[test]
    fn any_key_but_q_leaves_the_help_and_q_quits() {
        let mut controls = Controls::default();
        controls.press(Key::Char('?'));
        assert!(controls.shows_help);
        assert_eq!(controls.press(Key::Char('p')), Asked::Draw);
        assert_eq!((controls.shows_help, controls.is_paused), (false, false));
        controls.press(Key::Char('?'));
        assert_eq!(controls.press(Key::Char('q')), Asked::Quit);
        let mut controls = Controls::default();
        assert_eq!(controls.press(Key::Char('\x0c')), Asked::Repaint);
    }
}
