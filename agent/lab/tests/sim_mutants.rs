//! The mutants that `agent/lab/examples/sim_mutants` builds and runs still fit the sources.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use distlock_protocol::{Algorithm, ElectionAlgorithm};

#[path = "../examples/sim_mutants/patch.rs"]
mod patch;

use patch::Subject;

#[test]
fn every_mutant_applies() {
    let mutants = patch::all().unwrap();
    let names: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.name).collect();
    assert_eq!(names.len(), mutants.len(), "two mutants have one name");
    assert!(
        mutants.iter().any(|mutant| mutant.quick),
        "none is for continuous integration"
    );
    let mut outdated = Vec::new();
    for mutant in &mutants {
        let is_searched = matches!(mutant.run.subject, Subject::Search { .. });
        assert!(
            mutant.run.seeds > 0 || is_searched,
            "{}: nothing is to notice it",
            mutant.name
        );
        if let Subject::Elections { elections } = &mutant.run.subject {
            elections.parse::<ElectionAlgorithm>().unwrap();
        }
        if let Subject::Engine {
            engine,
            bare,
            failure,
            directed,
        } = &mutant.run.subject
        {
            let engine: Algorithm = engine.parse().unwrap();
            let known = ["quorum", "lying-quorum", "presume-failed"];
            let failure = failure.as_deref();
            assert!(
                failure.is_none_or(|failure| known.contains(&failure) && !bare && !directed),
                "{}: no nodes run under {failure:?}",
                mutant.name
            );
            // Bare engines have nothing around them that could be broken, but their grants' history,
            // and what the algorithm is said to need.
            let by_votes = matches!(engine, Algorithm::Maekawa | Algorithm::Majority);
            let engine = if by_votes { Algorithm::Maekawa } else { engine };
            let own = format!(
                "protocol/src/lock/algorithms/{}",
                engine.name().replace('-', "_")
            );
            let (file, folder) = (format!("{own}.rs"), format!("{own}/"));
            let sets = by_votes.then_some("protocol/src/lock/algorithms/coterie.rs");
            let around = [
                "protocol/src/lock/grant_history.rs",
                "protocol/src/lock/spec.rs",
            ];
            let mut runs_bare = around.into_iter().chain([file.as_str()]).chain(sets);
            assert!(
                !bare || mutant.file.starts_with(&folder) || runs_bare.any(|it| it == mutant.file),
                "{}: {own}",
                mutant.name
            );
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(&mutant.file);
        let whole = fs::read_to_string(&path).unwrap();
        match mutant.apply(&whole) {
            Ok(mutated) => assert_ne!(mutated, whole, "{}: nothing changes", mutant.name),
            Err(error) => outdated.push(error),
        }
    }
    assert!(outdated.is_empty(), "{}", outdated.join("\n"));
}

fn mutant(find: &str, replace: &str) -> patch::Mutant {
    let text = format!(
        "name = 'x'\nbreaks = ''\nfile = ''\nfind = '{find}'\nreplace = '{replace}'\n\
         run = {{ world = '' }}"
    );
    toml::from_str(&text).unwrap()
}

#[test]
fn mutants_stand_beside_what_they_change() {
    let whole = "fn one() -> u8 { fn two() -> u8 { 2 } two() }\nconst fn three() -> u8 { 3 }\n\
                 fn some() -> impl Iterator<Item = u8> { [4, 5].into_iter() }\n\
                 impl Six { fn six(&self) -> u8 { 6 } }\n";
    let changes = [
        ("{ 2 }", "{ 20 }"),
        ("{ 6 }", "{ 60 }"),
        ("3", "30"),
        ("4", "40"),
        ("u8 { 6", "u8 { 61"),
        ("two() }", "0 }"),
        ("6 }", "62 }"),
    ];
    let mutants = changes.map(|(find, replace)| mutant(find, replace));
    let mutants: Vec<_> = mutants.into_iter().enumerate().collect();
    let (text, apart) = patch::switch(whole, &mutants).unwrap();
    assert_eq!(apart, [2, 3, 4, 0]);
    let expected = "fn one() -> u8 { match crate::mutant() {\n\
                    /* x */ 5 => { fn two() -> u8 { 2 } 0 }\n\
                    _ => { fn two() -> u8 { 2 } two() }\n} }\n\
                    const fn three() -> u8 { 3 }\n\
                    fn some() -> impl Iterator<Item = u8> { [4, 5].into_iter() }\n\
                    impl Six { fn six(&self) -> u8 { match crate::mutant() {\n\
                    /* x */ 1 => { 60 }\n/* x */ 6 => { 62 }\n_ => { 6 }\n} } }\n";
    assert_eq!(text, expected);
}
