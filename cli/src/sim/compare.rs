//! `distlock sim --compare`: every algorithm in groups of every size, beside the book's values.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use distlock_agent::protocol::Algorithm;
use distlock_lab::costs::{Costs, INSIDE, Load, measure_bare};
use distlock_lab::reference::{Book, Said, Value, reference};

use super::args::Sim;
use crate::exit::{self, Failure};

/// The group sizes of the table.
const SIZES: [u16; 6] = [3, 5, 8, 16, 32, 64];

/// Sizes of planes, where Maekawa's members have equally many voters.
const PLANES: [u16; 4] = [7, 13, 31, 57];

/// How far off the book a value may be and still be the book's.
const TOLERANCE: f64 = 0.03;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
struct Case {
    algorithm: Algorithm,
    size: u16,
}

/// What was measured for one line.
#[derive(Debug)]
struct Measured {
    case: Case,
    light: Costs,
    heavy: Costs,
}

/// Prints the table.
///
/// # Errors
/// 69 if a run broke a rule, or cost anything else than it must: both are bugs.
pub(crate) fn compare(args: &Sim) -> Result<ExitCode, Failure> {
    let cases = cases(args);
    let lines = measure_all(&cases)?;
    let mut text = heading();
    let mut wrong = Vec::new();
    for line in &lines {
        text.push_str(&line.row());
        if !line.is_as_expected() {
            wrong.push(format!(
                "{} with N = {}",
                line.case.algorithm, line.case.size
            ));
        }
    }
    text.push_str(&deviations(&lines));
    exit::print(text.as_bytes(), "the table")?;
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        exit::UNAVAILABLE,
        format_args!(
            "not what it must cost: {}; please report this",
            wrong.join(", ")
        ),
    ))
}

/// The lines that are asked for, in the order of the table.
fn cases(args: &Sim) -> Vec<Case> {
    let all = Algorithm::ALL.into_iter();
    let wanted = all.filter(|algorithm| args.algorithm.is_none_or(|only| only == *algorithm));
    wanted
        .flat_map(|algorithm| {
            let mut sizes = args.nodes.clone();
            if sizes.is_empty() {
                sizes.extend(SIZES);
                if algorithm == Algorithm::Maekawa {
                    sizes.extend(PLANES);
                }
            }
            sizes.sort_unstable();
            sizes.dedup();
            sizes.into_iter().map(move |size| Case { algorithm, size })
        })
        .collect()
}

/// Measures all cases, on as many threads as there are cores; the largest groups first, as those
/// take longest.
fn measure_all(cases: &[Case]) -> Result<Vec<Measured>, Failure> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|place| core::cmp::Reverse(cases[*place].size));
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut lines: Vec<_> = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next, order) = (sender.clone(), &next, &order);
            scope.spawn(move || {
                while let Some(&place) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let measured = Measured::new(cases[place]);
                    if sender.send((place, measured)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().collect()
    });
    lines.sort_by_key(|(place, _)| *place);
    lines.into_iter().map(|(_, measured)| measured).collect()
}

impl Measured {
    fn new(case: Case) -> Result<Self, Failure> {
        let measure = |load| measure_bare(case.algorithm, case.size, load);
        Ok(Self {
            case,
            light: measure(Load::Light)?,
            heavy: measure(Load::Heavy)?,
        })
    }

    /// Response, synchronisation delay, messages under light load, and under heavy load.
    fn values(&self) -> [f64; 4] {
        let wait = self.light.response.mean_in(self.light.unit) - f64::from(INSIDE);
        // Where nobody waits there is no such delay.
        let sync = self.heavy.sync.mean_in(self.heavy.unit);
        [wait, sync, self.light.per_entry(), self.heavy.per_entry()]
    }

    /// What they must be.
    fn expected(&self) -> [Value; 4] {
        let known = reference(self.case.algorithm, self.case.size);
        [
            known.response,
            known.sync,
            known.light.total,
            known.heavy.total,
        ]
    }

    fn book(&self) -> [Option<Said>; 4] {
        let Book {
            response,
            sync,
            light,
            heavy,
        } = reference(self.case.algorithm, self.case.size).book;
        [response, sync, light, heavy]
    }

    fn is_as_expected(&self) -> bool {
        let mut pairs = self.values().into_iter().zip(self.expected());
        pairs.all(|(value, expected)| value.is_nan() || expected.admits(value))
    }

    /// Whether something is not what the book says.
    fn is_not_as_in_the_book(&self) -> bool {
        let pairs = self.values().into_iter().zip(self.book());
        let mut said = pairs.filter_map(|(value, said)| said.map(|said| (value, said.value)));
        // NaN is no deviation: nobody waited.
        said.any(|(value, book)| (value / book - 1.0).abs() > TOLERANCE)
    }

    /// Columns of fixed widths, for which `format!` does.
    fn row(&self) -> String {
        let mut row = format!("{:<20}{:>3}", self.case.algorithm, self.case.size);
        let columns = self
            .values()
            .into_iter()
            .zip(self.expected())
            .zip(self.book());
        for (place, ((value, expected), said)) in columns.enumerate() {
            let e = if place == 0 { "+E" } else { "" };
            let here = match expected {
                Value::Unbounded => "no end".to_owned(),
                _ if value.is_nan() => "-".to_owned(),
                _ => format!("{value:.2}{e}"),
            };
            let book = match said {
                None => "-".to_owned(),
                Some(said) if said.value.is_infinite() => "no end".to_owned(),
                Some(said) => format!("{}{e}", short(said.value)),
            };
            let _ = write!(row, " {here:>9}{book:>8} ");
        }
        format!("{}\n", row.trim_end())
    }
}

/// Without decimals where there are none.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn heading() -> String {
    let group = |name: &str| format!(" {name:>17} ");
    let mut first = " ".repeat(23);
    let mut second = format!("{:<20}{:>3}", "", "N");
    for name in [
        "response, light",
        "sync, heavy",
        "messages, light",
        "messages, heavy",
    ] {
        first.push_str(&group(name));
        let _ = write!(second, " {:>9}{:>8} ", "here", "book");
    }
    format!(
        "Measured with constant delays; times in T, a message's time on the way, and E, the time \
         inside.\nResponse: request to exit. Sync: exit to next entry. Messages are those of one \
         entry.\n\n{}\n{}\n",
        first.trim_end(),
        second.trim_end()
    )
}

/// Why something is not what the book says: a line for each algorithm that this goes for.
fn deviations(lines: &[Measured]) -> String {
    let mut text = String::new();
    for algorithm in Algorithm::ALL {
        let mut own = lines.iter().filter(|line| line.case.algorithm == algorithm);
        if let Some(line) = own.find(|line| line.is_not_as_in_the_book()) {
            let known = reference(algorithm, line.case.size);
            let _ = writeln!(text, "{algorithm}: {}.", known.deviation);
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\nWhere the book says otherwise:\n{text}")
}
