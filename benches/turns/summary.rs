//! The table at the end: the medians of what was measured in this run, and the ratios.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What was measured, by group and function, in the order of the run.
#[derive(Default)]
pub(crate) struct Summary {
    groups: Vec<(String, Vec<String>)>,
}

impl Summary {
    /// Notes that this function of this group was not filtered out.
    pub(crate) fn measured(&mut self, group: &str, function: &str) {
        if self.groups.last().is_none_or(|(last, _)| last != group) {
            self.groups.push((group.to_owned(), Vec::new()));
        }
        let functions = &mut self.groups.last_mut().expect("it was just made").1;
        if functions.iter().all(|known| known != function) {
            functions.push(function.to_owned());
        }
    }

    /// Prints the table; nothing where nothing was saved (`--test`, `--list`).
    pub(crate) fn print(&self) {
        let columns = ["acquire", "pair", "hand-over"];
        for (group, functions) in &self.groups {
            let medians: BTreeMap<_, _> = functions
                .iter()
                .filter_map(|function| Some((function.as_str(), median_us(group, function)?)))
                .collect();
            let Some(floor) = medians.get("floor") else {
                continue;
            };
            println!("\n{group} members: floor {floor:.1} µs (mio ping-pong)");
            println!(
                "{:<22}{:>20}{:>20}{:>20}",
                "", columns[0], columns[1], columns[2]
            );
            let algorithms = functions.iter().filter_map(|function| {
                function
                    .strip_suffix(" acquire")
                    .or(function.strip_suffix(" pair"))
            });
            let mut last = "";
            for algorithm in algorithms {
                if algorithm == last {
                    continue;
                }
                last = algorithm;
                print!("{algorithm:<22}");
                for column in columns {
                    match medians.get(format!("{algorithm} {column}").as_str()) {
                        Some(time) => print!("{time:>10.1} µs {:>5.2} ×", time / floor),
                        None => print!("{:>20}", "-"),
                    }
                }
                println!();
            }
        }
    }
}

/// The median that criterion saved.
fn median_us(group: &str, function: &str) -> Option<f64> {
    let path = results()
        .join(group.replace('/', "_"))
        .join(function)
        .join("new/estimates.json");
    let estimates: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(estimates["median"]["point_estimate"].as_f64()? / 1e3)
}

fn results() -> PathBuf {
    let home = std::env::var_os("CRITERION_HOME").map(PathBuf::from);
    home.unwrap_or_else(|| {
        // The program is in target/release/deps.
        let program = std::env::current_exe().expect("we have a path");
        program
            .ancestors()
            .nth(3)
            .unwrap_or(Path::new("."))
            .join("criterion")
    })
}
