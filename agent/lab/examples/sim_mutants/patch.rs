//! Mutants as they are written in `mutants.toml`, and how sources are changed to have them.

use std::ops::Range;

use serde::Deserialize;
use syn::visit::{self, Visit};

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
        let place = self.place(whole)?;
        Ok(self.change(whole, 0..whole.len(), &place))
    }

    /// A part of `whole` with the change, which is at `place` in `whole`.
    fn change(&self, whole: &str, part: Range<usize>, place: &Range<usize>) -> String {
        let (before, after) = (part.start..place.start, place.end..part.end);
        [&whole[before], &self.replace, &whole[after]].concat()
    }

    /// Where what it looks for is.
    fn place(&self, whole: &str) -> Result<Range<usize>, String> {
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
        Ok(start..last.0 + last.1.len_utf8())
    }
}

/// `whole` with `mutants` of its file, each of which stands beside what it changes, and is switched on by its
/// number; and the numbers of those that cannot: they change more than the body of one function, or one that the
/// compiler runs, or whose type depends on the body.
///
/// # Errors
/// It is no Rust, or what a mutant looks for is not there, or is there more than once.
pub(crate) fn switch(
    whole: &str,
    mutants: &[(usize, Mutant)],
) -> Result<(String, Vec<usize>), String> {
    let file = syn::parse_file(whole).map_err(|error| error.to_string())?;
    let mut bodies = Bodies::default();
    bodies.visit_file(&file);
    let (mut apart, mut switched) = (Vec::new(), Vec::new());
    for (number, mutant) in mutants {
        let place = mutant.place(whole)?;
        let holds = |body: &&Body| body.at.start <= place.start && place.end <= body.at.end;
        let innermost = bodies
            .0
            .iter()
            .filter(holds)
            .min_by_key(|body| body.at.len());
        match innermost {
            Some(body) if !body.is_single => {
                switched.push((body.at.clone(), place, *number, mutant))
            }
            _ => apart.push(*number),
        }
    }
    switched.sort_by_key(|(body, ..)| body.start);
    let (mut text, mut done) = (String::new(), 0);
    for of_body in switched.chunk_by(|(one, ..), (other, ..)| one == other) {
        let body = of_body[0].0.clone();
        if body.start < done {
            // It is in another one.
            apart.extend(of_body.iter().map(|(.., number, _)| *number));
            continue;
        }
        text += &whole[done..body.start];
        text += "{ match crate::mutant() {\n";
        for (body, place, number, mutant) in of_body {
            let changed = mutant.change(whole, body.clone(), place);
            text += &format!("/* {} */ {number} => {changed}\n", mutant.name);
        }
        text += &format!("_ => {}\n}} }}", &whole[body.clone()]);
        done = body.end;
    }
    Ok((text + &whole[done..], apart))
}

/// The bodies of a file's functions.
#[derive(Default)]
struct Bodies(Vec<Body>);

struct Body {
    at: Range<usize>,
    /// Whether no other may stand beside it.
    is_single: bool,
}

impl Bodies {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let mut found = HasImplTrait(false);
        found.visit_return_type(&signature.output);
        let braces = body.brace_token.span;
        self.0.push(Body {
            at: braces.open().byte_range().start..braces.close().byte_range().end,
            is_single: signature.constness.is_some() || found.0,
        });
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Whether a type has an `impl Trait` in it.
struct HasImplTrait(bool);

impl<'ast> Visit<'ast> for HasImplTrait {
    fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
        self.0 = true;
    }
}
