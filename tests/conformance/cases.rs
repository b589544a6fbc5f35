//! The cases. Each uses locks of its own, so that they can be played side by side.

#[path = "cases/elections.rs"]
mod elections;
#[path = "cases/endings.rs"]
mod endings;
#[path = "cases/exclusion.rs"]
mod exclusion;
#[path = "cases/futures.rs"]
mod futures;
#[path = "cases/names.rs"]
mod names;
#[path = "cases/processes.rs"]
mod processes;
#[path = "cases/semaphores.rs"]
mod semaphores;
#[path = "cases/sharing.rs"]
mod sharing;
#[path = "cases/waiting.rs"]
mod waiting;

use crate::bench::Case;

/// All of them, those that take long first.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    let chapters = [
        endings::cases(),
        exclusion::cases(),
        waiting::cases(),
        futures::cases(),
        sharing::cases(),
        semaphores::cases(),
        elections::cases(),
        names::cases(),
        processes::cases(),
    ];
    chapters.into_iter().flatten()
}
