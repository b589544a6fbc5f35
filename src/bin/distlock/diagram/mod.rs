//! What happened in a group, simulated or real, as people look at it: a space-time diagram, a log
//! for ShiViz, a story in words.

mod axis;
mod files;
pub(crate) mod film;
mod labels;
mod picture;
mod shiviz;
mod story;
mod svg;

pub(crate) use files::{Wanted, check, write};
pub(crate) use film::Film;
pub(crate) use story::story;
