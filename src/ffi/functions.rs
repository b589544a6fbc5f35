//! The functions, by what they are about.

mod agent;
mod fence;
mod mutex;
mod sem;
