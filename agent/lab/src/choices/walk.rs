//! Choices that are searched: every run that deviates from the ordinary one in few of them.
//!
//! At each choice the ordinary alternative is the first: no coin comes up, a wait is as long as its
//! mean, and of a range the first is taken. A *deviation* is another alternative. [`Search`] plays the
//! run without deviations, and then every run with one more, up to a number of them: if none of these
//! breaks a rule, a defect needs more deviations. Bounding the deviations in place of the depth is Emmi,
//! Qadeer and Rakamarić's idea (*Delay-bounded scheduling*, POPL 2011): most defects need few, wherever
//! in the run they are.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A choice that is not the ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Which choice of the run, from 0.
    pub at: u64,
    /// Which alternative, from 1.
    pub takes: u64,
}

/// The deviations of one run, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deviations(pub Vec<Deviation>);

impl fmt::Display for Deviations {
    /// As [`FromStr`] reads them: `812=1,840=3`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (i, Deviation { at, takes }) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{at}={takes}")?;
        }
        Ok(())
    }
}

impl FromStr for Deviations {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRITTEN: &str = "deviations are written CHOICE=ALTERNATIVE, the earliest first, as in 812=1,840=3; or none";
        if text == "none" {
            return Ok(Self::default());
        }
        let deviation = |part: &str| {
            let (at, takes) = part.split_once('=')?;
            let (at, takes) = (at.parse().ok()?, takes.parse().ok()?);
            (takes > 0).then_some(Deviation { at, takes })
        };
        let deviations: Option<Vec<_>> = text.split(',').map(deviation).collect();
        let deviations = deviations.filter(|its| its.is_sorted_by(|a, b| a.at < b.at));
        deviations.map(Self).ok_or(WRITTEN)
    }
}

/// What one run chooses, and what else it could have chosen; its copies are the same.
#[derive(Clone, Debug)]
pub(super) struct Walk(Arc<Mutex<Path>>);

#[derive(Debug)]
struct Path {
    deviations: Deviations,
    /// How many choices were made.
    made: u64,
    /// How many deviations the run has come to.
    taken: usize,
    /// The alternatives of each choice after the last deviation.
    open: Vec<(u64, u64)>,
    is_closed: bool,
}

impl Walk {
    fn new(deviations: Deviations) -> Self {
        Self(Arc::new(Mutex::new(Path {
            deviations,
            made: 0,
            taken: 0,
            open: Vec::new(),
            is_closed: false,
        })))
    }

    fn path(&self) -> MutexGuard<'_, Path> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses one of `alternatives`, counted from 0. A single alternative is no choice, and is not counted.
    pub(super) fn choose(&self, alternatives: u64) -> u64 {
        let mut path = self.path();
        if alternatives < 2 || path.is_closed {
            return 0;
        }
        let at = path.made;
        path.made += 1;
        match path.deviations.0.get(path.taken).copied() {
            None => path.open.push((at, alternatives)),
            Some(deviation) if deviation.at == at => {
                path.taken += 1;
                let takes = deviation.takes;
                assert!(
                    takes < alternatives,
                    "choice {at} has no alternative {takes}"
                );
                return takes;
            }
            Some(_) => {}
        }
        0
    }

    /// From now on nothing is chosen.
    pub(super) fn close(&self) {
        self.path().is_closed = true;
    }
}

/// A way through all runs with few deviations.
#[derive(Debug)]
pub struct Search {
    most: usize,
    /// How many choices a deviation is at most behind the one before.
    within: u64,
    /// What is still to be played, the next one last.
    to_play: Vec<Deviations>,
    playing: Option<Walk>,
}

impl Search {
    /// All runs that begin with `first` and have at most `most` deviations more, each of them at
    /// most `within` choices after the one before.
    pub fn new(first: Deviations, most: usize, within: u64) -> Self {
        Self {
            most: most + first.0.len(),
            within,
            to_play: vec![first],
            playing: None,
        }
    }

    /// The choices of the next run, if there is one; the one before has ended.
    ///
    /// # Panics
    /// The run before did not come to its deviations: the same choices gave another run.
    pub fn next_run(&mut self) -> Option<super::Choices> {
        if let Some(ended) = self.playing.take() {
            self.extend(&ended);
        }
        let walk = Walk::new(self.to_play.pop()?);
        self.playing = Some(walk.clone());
        Some(super::Choices(super::Source::Search(walk)))
    }

    /// The deviations of the run that plays or was played last.
    pub fn deviations(&self) -> Deviations {
        let playing = self.playing.as_ref();
        playing.map_or_else(Deviations::default, |walk| walk.path().deviations.clone())
    }

    /// How many choices that run has made.
    pub fn choices_made(&self) -> u64 {
        self.playing.as_ref().map_or(0, |walk| walk.path().made)
    }

    /// Whether that run came to all of its deviations: it did not if the same choices gave another run.
    pub fn took_all(&self) -> bool {
        let is_whole = |path: &Path| path.taken == path.deviations.0.len();
        self.playing
            .as_ref()
            .is_none_or(|walk| is_whole(&walk.path()))
    }

    /// The runs with one deviation more than the one that was played last, in the order of the choices.
    ///
    /// # Panics
    /// That run did not come to its deviations.
    pub fn successors(&self) -> Vec<Deviations> {
        let ended = self.playing.as_ref();
        ended.map_or_else(Vec::new, |walk| successors(walk, u64::MAX))
    }

    fn extend(&mut self, ended: &Walk) {
        if ended.path().deviations.0.len() < self.most {
            self.to_play
                .extend(successors(ended, self.within).into_iter().rev());
        }
    }
}

fn successors(ended: &Walk, within: u64) -> Vec<Deviations> {
    let path = ended.path();
    let so_far = &path.deviations;
    assert!(
        path.taken == so_far.0.len(),
        "the run with deviations {so_far} ended before them"
    );
    let end = match so_far.0.last() {
        Some(last) => last.at.saturating_add(within),
        None => u64::MAX,
    };
    let open = path.open.iter().take_while(|(at, _)| *at <= end);
    let deviations = open.flat_map(|&(at, of)| (1..of).map(move |takes| Deviation { at, takes }));
    let one_more = |deviation| {
        let mut more = so_far.clone();
        more.0.push(deviation);
        more
    };
    deviations.map(one_more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three choices, of which the third is there only if the first came up.
    fn play(search: &mut Search) -> Option<(u64, u64, u64)> {
        let mut choices = search.next_run()?;
        let first = choices.below(2);
        let second = choices.fork().below(3);
        let third = if first == 1 { choices.below(2) } else { 0 };
        Some((first, second, third))
    }

    fn all(most: usize) -> Vec<(u64, u64, u64)> {
        let mut search = Search::new(Deviations::default(), most, u64::MAX);
        core::iter::from_fn(|| play(&mut search)).collect()
    }

    #[test]
    fn every_run_with_so_many_deviations_is_played_once() {
        assert_eq!(all(0), [(0, 0, 0)]);
        assert_eq!(all(1), [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 2, 0)]);
        let every = all(3);
        assert_eq!(every.len(), 9);
        let mut apart = every.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), 9, "{every:?}");
    }

    #[test]
    fn deviations_far_apart_are_left_out() {
        let mut search = Search::new(Deviations::default(), 2, 1);
        let runs: Vec<_> = core::iter::from_fn(|| play(&mut search)).collect();
        // The first choice and the third are too far apart.
        assert!(
            runs.contains(&(1, 2, 0)) && !runs.contains(&(1, 0, 1)),
            "{runs:?}"
        );
    }

    #[test]
    fn what_was_played_is_played_again() {
        let mut search = Search::new(Deviations::default(), 3, u64::MAX);
        while let Some(played) = play(&mut search) {
            let deviations: Deviations =
                search.deviations().to_string().parse().expect("as written");
            let again = play(&mut Search::new(deviations, 0, 0));
            assert_eq!(again, Some(played));
        }
    }

    #[test]
    fn a_run_that_does_not_come_to_its_deviations_is_known() {
        let never = "7=1".parse().expect("a list");
        let mut search = Search::new(never, 0, 0);
        assert!(play(&mut search).is_some() && !search.took_all());
    }

    #[test]
    fn what_is_no_list_of_deviations_is_refused() {
        for text in ["", "1", "1=0", "2=1,1=1", "1=1,1=2", "1=1,", "x=1"] {
            assert!(text.parse::<Deviations>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn nothing_is_searched_after_the_end() {
        let mut search = Search::new(Deviations::default(), 1, u64::MAX);
        let mut choices = search.next_run().expect("the ordinary run");
        choices.end_search();
        assert_eq!(choices.below(2), 0);
        assert!(search.next_run().is_none());
    }
}
