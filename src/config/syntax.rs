//! From text to what its keys say; and what the TOML parser refuses, in the words of a person.

use toml_span::tokens::{Token, Tokenizer};
use toml_span::{DeserError, DeserializeOwned, Error, ErrorKind, Span};

use super::fault::Fault;

/// How many dots there may be outside of strings and comments: more than a configuration needs, which
/// is two. The parser recurses at each dot of a key, remembers what is before it, and looks for that
/// among all keys of the table. So few cost little, whatever else a file says.
const MAX_DOTS: usize = 16;
/// How deeply brackets and braces may be nested, which is two in a configuration. The parser recurses
/// there, too, and threads of programs may have little room for that.
const MAX_DEPTH: usize = 16;

/// Reads `text`, or says what is wrong in it: the parser's first fault, or else the first by place.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    if let Some(excess) = excess(text) {
        // The parser gets what is before. Where that is cut off in the middle, it says so at its end.
        return Err(match toml_span::parse(&text[..excess.at]) {
            Err(error) if error.span.start < excess.at => fault(text, &error),
            _ => excess,
        });
    }
    let value = toml_span::parse(text).map_err(DeserError::from);
    value
        .and_then(|mut value| T::deserialize(&mut value))
        .map_err(|all| {
            let first = all.errors.iter().min_by_key(|error| found_at(error));
            fault(text, first.expect("an error says what it is"))
        })
}

/// Where there is more than the parser may get.
fn excess(text: &str) -> Option<Fault> {
    let mut tokens = Tokenizer::new(text);
    let (mut dots, mut depth) = (0, 0_usize);
    // Where there is no token the parser stops, too, and says why.
    while let Ok(Some((span, token))) = tokens.step() {
        match token {
            Token::Period => dots += 1,
            Token::LeftBracket | Token::LeftBrace => depth += 1,
            Token::RightBracket | Token::RightBrace => depth = depth.saturating_sub(1),
            _ => {}
        }
        if dots > MAX_DOTS {
            return Some(Fault::new(
                span,
                format!(
                    "there are more than {MAX_DOTS} dots outside of quotes and comments: put addresses \
                     and names in quotes, and give no key more than two parts"
                ),
            ));
        }
        if depth > MAX_DEPTH {
            return Some(Fault::new(
                span,
                format!(
                    "brackets are nested more than {MAX_DEPTH} deep: no key needs that; \
                     distlock.toml(5) says what there is"
                ),
            ));
        }
    }
    None
}

/// Where whoever reads the text from its beginning finds the error: that a key is missing, at the end
/// of its table, where one that is misspelt was found before.
fn found_at(error: &Error) -> usize {
    match &error.kind {
        ErrorKind::MissingField(_) => error.span.end,
        ErrorKind::UnexpectedKeys { keys, .. } => first_of(keys).1.start,
        _ => error.span.start,
    }
}

fn first_of(keys: &[(String, Span)]) -> &(String, Span) {
    let first = keys.iter().min_by_key(|(_, span)| span.start);
    first.expect("there is one that was not expected")
}

/// What is wrong, why, and what to do, in one line.
fn fault(text: &str, error: &Error) -> Fault {
    let reason = match &error.kind {
        ErrorKind::UnexpectedKeys { keys, expected } => {
            let (key, span) = first_of(keys);
            let (key, expected) = (key.escape_debug(), expected.join("`, `"));
            let reason = format!(
                "unknown key `{key}`: the keys here are `{expected}`; distlock.toml(5) says what there is"
            );
            return Fault::new(*span, reason);
        }
        ErrorKind::MissingField(key) => {
            format!("the key `{key}` is missing: add it; distlock.toml(5) says what there is")
        }
        ErrorKind::DuplicateKey { key, .. } => {
            let key = key.escape_debug();
            format!("the key `{key}` is there twice: write it once")
        }
        ErrorKind::DuplicateTable { name, first } => {
            let name = name.escape_debug();
            let is_array = [first, &error.span].map(|span| follows(text, span.start, "[["));
            if is_array == [false, false] {
                format!("the table `{name}` is there twice: write it once")
            } else {
                format!("`{name}` is there as [{name}] and as [[{name}]]: write it in one form")
            }
        }
        ErrorKind::RedefineAsArray => {
            "a table inside this one comes before it: move that behind it".to_owned()
        }
        ErrorKind::DottedKeyInvalidType { .. } => {
            "what is before the dot is a key of its own already, and no table: write it once"
                .to_owned()
        }
        ErrorKind::Wanted { expected, found } => {
            let there = found_there(text, error, found);
            let (expected, found) = (plainly(expected), plainly(found));
            format!(
                "expected {expected}, found {found}{there}; distlock.toml(5) says what there is"
            )
        }
        kind => unreadable(kind, word(text, error.span.start))
            .unwrap_or_else(|| format!("{error}; distlock.toml(5) says what there is")),
    };
    Fault::new(error.span, reason)
}

/// What makes a text no TOML; `word` is what is there.
fn unreadable(kind: &ErrorKind, word: &str) -> Option<String> {
    let reason = match kind {
        ErrorKind::UnquotedString => {
            format!("`{word}` is no number, and neither `true` nor `false`: put text in quotes")
        }
        ErrorKind::InvalidNumber => {
            format!("`{word}` is no number of 64 bits: correct it, or put text in quotes")
        }
        ErrorKind::Unexpected(c) => {
            format!("{c:?} begins neither a key nor a value: put text in quotes, or remove it")
        }
        ErrorKind::UnexpectedEof => "the text ends where a value belongs: write one".to_owned(),
        ErrorKind::UnterminatedString => {
            "a string begins here and does not end: close it with the quotation mark that begins it"
                .to_owned()
        }
        ErrorKind::InvalidCharInString('\n') => {
            "a string does not end in its line: close it with the quotation mark that begins it"
                .to_owned()
        }
        ErrorKind::InvalidCharInString(c) => format!(
            "a string has the control character {c:?}: remove it, or write an escape, as \\u0001"
        ),
        ErrorKind::InvalidEscape(c) => {
            let c = c.escape_debug();
            format!("strings know no escape \\{c}: write \\\\ for a backslash")
        }
        ErrorKind::InvalidHexEscape(c) => format!(
            "{c:?} is no hexadecimal digit: an escape needs two after \\x, four after \\u and eight \
             after \\U"
        ),
        ErrorKind::InvalidEscapeValue(value) => {
            format!("the escape for {value:X} is that of no character: write another")
        }
        ErrorKind::MultilineStringKey => {
            "a key cannot have several lines: write it in one".to_owned()
        }
        _ => return None,
    };
    Some(reason)
}

/// What there is in place of what was expected, if it is short: a value, or a word where the parser
/// `found` one.
fn found_there(text: &str, error: &Error, found: &str) -> String {
    let there = match error.line_info {
        None => text.get(error.span.start..error.span.end),
        Some(_) => (found == "an identifier").then(|| word(text, error.span.start)),
    };
    // Of an empty string that is its quotation mark.
    let is_shown = |there: &&str| {
        (1..=40).contains(&there.len()) && !there.contains(char::is_control) && *there != "\""
    };
    let there = there.filter(is_shown);
    there.map(|there| format!(" `{there}`")).unwrap_or_default()
}

fn follows(text: &str, at: usize, what: &str) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(what))
}

/// What is not in quotes at `at`, whole, but no more than fits into a line.
fn word(text: &str, at: usize) -> &str {
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || "+-_.:/".contains(c);
    let Some((before, after)) = text.split_at_checked(at) else {
        return "";
    };
    let start = before.trim_end_matches(is_of_it).len();
    let len = after.find(|c| !is_of_it(c)).unwrap_or(after.len());
    let word = &text[start..at + len];
    word.get(..40).unwrap_or(word)
}

/// What the parser calls so.
fn plainly(what: &'static str) -> &'static str {
    match what {
        "i64" | "integer" => "an integer",
        "a bool" | "boolean" => "a boolean",
        "string" => "a string",
        "float" => "a fraction",
        "array" => "an array",
        "table" => "a table",
        "a table key" => "a key",
        "an identifier" => "a word",
        "an equals" => "`=`",
        "a period" => "`.`",
        "a comma" => "`,`",
        "a colon" => "`:`",
        "a plus" => "`+`",
        "a left brace" => "`{`",
        "a right brace" => "`}`",
        "a left bracket" => "`[`",
        "a right bracket" => "`]`",
        "newline" | "a newline" => "the end of the line",
        "eof" => "the end of the text",
        other => other,
    }
}
