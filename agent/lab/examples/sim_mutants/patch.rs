//! Mutants as they are written in `mutants.toml`.

use serde::Deserialize;

/// A breach of one rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    /// What it is called.
    pub name: String,
    /// The rule that it breaks, and where that stands.
    pub breaks: String,
    /// The file to change, from the crate's directory.
    pub file: String,
    /// What to look for. White space does not count, so that the formatter may move it about.
    pub find: String,
    /// What to put there.
    pub replace: String,
    /// What is to notice it.
    pub run: Run,
    /// Whether it is one of the few that continuous integration runs.
    #[serde(default)]
    pub quick: bool,
}

/// What is put to the test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
pub(crate) enum Subject {
    /// An algorithm, in bare engines or in whole nodes.
    Engine {
        engine: String,
        #[serde(default)]
        bare: bool,
        /// What decides on views where whole nodes run, as `sim_campaign --failure` names it.
        #[serde(default)]
        failure: Option<String>,
        /// Whether faults are aimed, under quorum views.
        #[serde(default)]
        directed: bool,
    },
    /// Elections by this algorithm.
    Elections { elections: String },
    /// What stands beside the locks, as `sim_campaign --world` names it.
    World { world: String },
    /// The real programs, on hosts that `host_campaign` simulates.
    Hosts {
        /// The algorithm, or `all`.
        hosts: String,
        /// What befalls them above all, as `host_campaign --trouble` names it.
        #[serde(default)]
        trouble: Option<String>,
    },
    /// What `sim_search` searches, as its command line names it.
    Search { search: String },
    /// A world of `model_check`, as its command line names it.
    Model { model: String },
}

/// Seeds of the simulator, or states of a model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    /// What is put to the test.
    #[serde(flatten)]
    pub subject: Subject,
    /// The seeds 0 to this, exclusive; or how many states. A search says itself how far it goes.
    #[serde(alias = "states", default)]
    pub seeds: u64,
}

#[derive(Deserialize)]
struct Mutants {
    mutant: Vec<Mutant>,
}

/// All mutants.
pub(crate) fn all() -> Result<Vec<Mutant>, toml::de::Error> {
    toml::from_str::<Mutants>(include_str!("mutants.toml")).map(|mutants| mutants.mutant)
}

impl Mutant {
    /// `whole` with the change.
    ///
    /// # Errors
    /// What it looks for is not there, or is there more than once.
    pub(crate) fn apply(&self, whole: &str) -> Result<String, String> {
        let ink = |text: &str| -> Vec<(usize, char)> {
            text.char_indices()
                .filter(|(_, c)| !c.is_whitespace())
                .collect()
        };
        let (hay, needle) = (ink(whole), ink(&self.find));
        let places: Vec<_> = hay
            .windows(needle.len())
            .filter(|window| {
                window
                    .iter()
                    .map(|(_, c)| c)
                    .eq(needle.iter().map(|(_, c)| c))
            })
            .collect();
        let [place] = places[..] else {
            return Err(format!(
                "mutant {}: what it looks for is {} times in {}; bring it up to date (it breaks: \
                 {})",
                self.name,
                places.len(),
                self.file,
                self.breaks
            ));
        };
        let (start, last) = (place[0].0, place[place.len() - 1]);
        let end = last.0 + last.1.len_utf8();
        Ok(format!(
            "{}{}{}",
            &whole[..start],
            self.replace,
            &whole[end..]
        ))
    }
}
