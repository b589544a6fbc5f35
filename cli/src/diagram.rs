//! What happened in a group, simulated or real, as people look at it: a space-time diagram, a log
//! for ShiViz, a story in words.

mod axis;
mod files;
mod labels;
mod picture;
mod shiviz;
mod story;
mod svg;
pub(crate) mod timeline;

pub(crate) use files::{Wanted, check, write};
pub(crate) use story::story;
pub(crate) use timeline::Timeline;
