//! What the README says about files and names holds. Its Rust examples are documentation tests, and
//! its commands are run by `.ci/documents`.

use distlock::{Algorithm, Config};

const README: &str = include_str!("../README.md");

#[test]
fn the_configuration_is_accepted() {
    let (_, rest) = README.split_once("```toml\n").expect("it has one");
    let (text, _) = rest.split_once("```").expect("it ends");
    let config = Config::parse(text).unwrap();
    assert_eq!(config.members().len(), 2);
}

#[test]
fn the_algorithms_are_those_there_are() {
    let (_, rest) = README
        .split_once("## Algorithms")
        .expect("it has the section");
    let (section, _) = rest.split_once("\n## ").expect("it ends");
    let named: Vec<_> = section
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .split_once('`')
                .map(|(name, _)| name)
        })
        .collect();
    assert_eq!(named, Algorithm::ALL.map(Algorithm::name));
}
