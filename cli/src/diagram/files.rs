//! The files that are written: the diagram, alone or in a page, and the log for ShiViz.

use std::fmt::Display;
use std::path::Path;

use super::picture::Picture;
use super::shiviz;
use super::svg::{escape, svg};
use super::timeline::Timeline;
use crate::exit::{Failure, quoted};
use crate::refusal;

/// How much can happen in a picture that anybody would look at.
const MOST: usize = 50_000;

/// How a page around a diagram looks.
const STYLE: &str = "\
:root { color-scheme: light dark; }
body { margin: 24px; background: #ffffff; color: #1b232c;
  font: 15px/1.5 system-ui, -apple-system, \"Segoe UI\", \"DejaVu Sans\", sans-serif; }
.scroll { overflow-x: auto; border: 1px solid #98a3af; border-radius: 6px; }
.scroll svg { display: block; }
pre { font-size: 13px; line-height: 1.45; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #0c0f13; color: #dde4ec; } .scroll { border-color: #5d6975; } }
";

/// Which files somebody wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The diagram: a .svg or .html file.
    pub(crate) diagram: Option<&'a Path>,
    /// The log for ShiViz.
    pub(crate) shiviz: Option<&'a Path>,
    /// What to do when there is too much to look at.
    pub(crate) less: &'static str,
    /// The command that wants them.
    pub(crate) command: &'static str,
}

impl Wanted<'_> {
    fn usage(&self, message: impl Display) -> Failure {
        Failure::usage(message, self.command)
    }
}

/// Whether the files can be made: to be asked before anything else is done.
///
/// # Errors
/// 64 if a diagram's name does not say which kind it is.
pub(crate) fn check(wanted: &Wanted<'_>) -> Result<(), Failure> {
    match wanted.diagram {
        Some(file) if !is_page(file) && !is_svg(file) => Err(wanted.usage(format_args!(
            "the diagram {} must be a .svg or .html file; name it so",
            quoted(file)
        ))),
        _ => Ok(()),
    }
}

/// Writes what is asked for. `report` goes into the page, too.
///
/// # Errors
/// 64 if there is too much to draw; 66, 69 or 77 if a file cannot be written.
pub(crate) fn write(
    wanted: &Wanted<'_>,
    timeline: &Timeline,
    title: &str,
    report: &str,
) -> Result<(), Failure> {
    let many = timeline.shown().count();
    if many > MOST && (wanted.diagram.is_some() || wanted.shiviz.is_some()) {
        return Err(wanted.usage(format_args!(
            "{many} events are too many to look at; {}",
            wanted.less
        )));
    }
    if let Some(file) = wanted.diagram {
        let diagram = svg(&Picture::new(timeline), title);
        let text = if is_page(file) {
            page(title, &diagram, report)
        } else {
            diagram
        };
        write_to(file, &text, "the diagram")?;
    }
    if let Some(file) = wanted.shiviz {
        write_to(file, &shiviz::log(timeline), "the log")?;
    }
    Ok(())
}

fn page(title: &str, diagram: &str, report: &str) -> String {
    let (title, report) = (escape(title), escape(report));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n<div class=\"scroll\">\n{diagram}</div>\n\
         <pre>{report}</pre>\n</html>\n"
    )
}

fn is_page(file: &Path) -> bool {
    file.extension()
        .is_some_and(|ending| ending == "html" || ending == "htm")
}

fn is_svg(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "svg")
}

fn write_to(file: &Path, text: &str, what: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        let name = quoted(file);
        Failure::new(
            refusal::code_of(&error),
            format_args!("cannot write {what} {name}: {error}; name a file that can be written"),
        )
    })
}
