//! Draws what `compare --json FILE` has measured:
//!
//! ```text
//! plot FILE DIRECTORY        # DIRECTORY/compare-times.svg, DIRECTORY/compare-pairs.svg
//! ```

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use plotters::prelude::*;
use serde_json::Value;

/// How high the line of a system is, in pixels.
const LINE: u32 = 26;
/// What the picture has above and below them.
const AROUND: u32 = 120;

/// One picture: the columns that it shows, each in a colour that is told from the others by those who
/// see few colours too (Okabe and Ito 2008).
struct Picture {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    /// What one of the axis is in the file.
    unit: f64,
    /// Where the legend hides nothing.
    legend: SeriesLabelPosition,
    columns: &'static [(&'static str, RGBColor)],
}

const PICTURES: [Picture; 2] = [
    Picture {
        file: "compare-times.svg",
        title: "Time to get a lock (medians; less is better)",
        axis: "microseconds",
        unit: 1e3,
        legend: SeriesLabelPosition::UpperRight,
        columns: &[
            ("acquire", RGBColor(0, 158, 115)),
            ("acquire after another", RGBColor(230, 159, 0)),
            ("hand-over, 2", RGBColor(0, 114, 178)),
            ("hand-over, 8", RGBColor(213, 94, 0)),
        ],
    },
    Picture {
        file: "compare-pairs.svg",
        title: "Acquire and release by 8 processes (medians; more is better)",
        axis: "pairs a second",
        unit: 1.0,
        legend: SeriesLabelPosition::LowerRight,
        columns: &[
            ("pairs/s, 8, one lock", RGBColor(0, 114, 178)),
            ("pairs/s, 8, 1,000 locks", RGBColor(230, 159, 0)),
        ],
    },
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, directory] = &arguments[..] else {
        eprintln!("plot: say plot FILE DIRECTORY");
        return ExitCode::from(2);
    };
    match draw_all(Path::new(file), Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {file}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw_all(file: &Path, directory: &Path) -> Result<(), Box<dyn Error>> {
    let measured: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let rounds = measured["rounds"].as_array().ok_or("it has no rounds")?;
    for picture in &PICTURES {
        let mut rows = rows(rounds, picture);
        rows.retain(|(_, values)| values.iter().any(Option::is_some));
        draw(picture, &rows, &directory.join(picture.file))?;
    }
    Ok(())
}

/// The systems, and for each column of the picture the median of all rounds.
fn rows(rounds: &[Value], picture: &Picture) -> Vec<(String, Vec<Option<f64>>)> {
    let systems = rounds
        .first()
        .and_then(|round| round["systems"].as_object());
    let names = systems.into_iter().flat_map(|systems| systems.keys());
    let row = |name: &String| {
        let of = |column: &str| {
            let values = rounds.iter().map(|round| &round["systems"][name][column]);
            let mut values: Vec<f64> = values.filter_map(Value::as_f64).collect();
            values.sort_unstable_by(f64::total_cmp);
            let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
            Some(f64::midpoint(values[low], values[high]) / picture.unit)
        };
        let values = picture.columns.iter().map(|(column, _)| of(column));
        (name.replace('`', ""), values.collect())
    };
    names.map(row).collect()
}

fn draw(
    picture: &Picture,
    rows: &[(String, Vec<Option<f64>>)],
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let values = || rows.iter().flat_map(|(_, values)| values).flatten();
    let least = values().copied().fold(f64::INFINITY, f64::min);
    let most = values().copied().fold(0.0, f64::max);
    if rows.is_empty() || least <= 0.0 {
        return Err("it has nothing that this picture shows".into());
    }
    // Whole decades.
    let decade = |value: f64| 10f64.powf(value);
    let (from, to) = (decade(least.log10().floor()), decade(most.log10().ceil()));
    let count = u32::try_from(rows.len())?;
    let area = SVGBackend::new(path, (900, count * LINE + AROUND)).into_drawing_area();
    area.fill(&WHITE)?;
    let bottom = -0.5..f64::from(count) - 0.5;
    let mut chart = ChartBuilder::on(&area)
        .caption(picture.title, ("sans-serif", 18))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(250)
        .build_cartesian_2d((from..to).log_scale(), bottom)?;
    // The first system is on top.
    let place = |at: usize| f64::from(count) - 1.0 - at as f64;
    chart
        .configure_mesh()
        .x_desc(picture.axis)
        .x_label_formatter(&|value| grouped(*value))
        .y_labels(rows.len() * 2)
        .y_label_formatter(&|value| {
            let named = (0..rows.len()).find(|at| (place(*at) - value).abs() < 0.01);
            named.map_or(String::new(), |at| rows[at].0.clone())
        })
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(220, 220, 220))
        .draw()?;
    for (column, (name, colour)) in picture.columns.iter().enumerate() {
        let points = rows.iter().enumerate().filter_map(|(at, (_, values))| {
            let value = values[column]?;
            Some(Circle::new((value, place(at)), 5, colour.filled()))
        });
        chart
            .draw_series(points)?
            .label(*name)
            .legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(picture.legend.clone())
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(160, 160, 160))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}

/// As people write it: 0.1, 10, 10,000.
fn grouped(value: f64) -> String {
    if value < 1.0 {
        return format!("{value}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
