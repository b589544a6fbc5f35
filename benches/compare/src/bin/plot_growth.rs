//! Draws what `cargo bench -p distlock-benches --bench growth -- --json FILE` has measured, a picture for each thing that
//! grows, and lines for what grows with it, as multiples of what it was at the first count. What is measured of those
//! that want nothing has pictures of its own:
//!
//! ```text
//! plot_growth FILE DIRECTORY        # DIRECTORY/growth-members.svg, growth-members-idle.svg, growth-locks.svg, ...
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use plotters::prelude::*;
use serde_json::Value;

const SIZE: (u32, u32) = (900, 560);

/// Told from each other by those who see few colours too (Okabe and Ito 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(0, 0, 0),
];

/// How something may grow, in theory.
const THEORIES: [(&str, i32); 3] = [
    ("constant", 0),
    ("in proportion", 1),
    ("with the square", 2),
];

/// What grew, by what it is, at each count.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, directory] = &arguments[..] else {
        eprintln!("plot_growth: say plot_growth FILE DIRECTORY");
        return ExitCode::from(2);
    };
    match draw_all(Path::new(file), Path::new(directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot_growth: {file}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw_all(file: &Path, directory: &Path) -> Result<(), Box<dyn Error>> {
    let measured: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let mut curves: BTreeMap<String, Lines> = BTreeMap::new();
    for row in measured.as_array().ok_or("it has no rows")? {
        let text = |field: &str| row[field].as_str().map(str::to_owned);
        let number = |field: &str| row[field].as_f64();
        let point = number("count").zip(number("value"));
        let (Some(mut curve), Some(what), Some(point)) = (text("curve"), text("what"), point)
        else {
            return Err(format!("what is {row}?").into());
        };
        if curve == "members" && (what.contains("idle") || what.contains("memory")) {
            curve += "-idle";
        }
        let lines = curves.entry(curve).or_default();
        lines.entry(what).or_default().push(point);
    }
    for (curve, mut lines) in curves {
        // Of the first count everything is a multiple.
        lines.retain(|_, points| points.len() > 1 && points.iter().all(|(_, value)| *value > 0.0));
        if !lines.is_empty() {
            draw(
                &curve,
                &lines,
                &directory.join(format!("growth-{curve}.svg")),
            )?;
        }
    }
    Ok(())
}

fn draw(curve: &str, lines: &Lines, path: &Path) -> Result<(), Box<dyn Error>> {
    let multiples = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        let first = points[0].1;
        points
            .iter()
            .map(|(at, value)| (*at, value / first))
            .collect()
    };
    let all: Vec<_> = lines
        .values()
        .flat_map(|points| multiples(points))
        .collect();
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        })
    };
    let (from, to) = range(&mut all.iter().map(|(at, _)| *at));
    let (low, high) = range(&mut all.iter().map(|(_, value)| *value));
    let (low, high) = (low.min(1.0) / 1.5, high.max(2.0) * 1.5);
    let counted = curve.trim_end_matches("-idle");
    let caption = match curve == counted {
        true => format!("What grows with {counted}"),
        false => format!("What idle members cost, with more {counted}"),
    };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((from..to).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(counted)
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&|times| format!("{times}"))
        .y_desc(format!("times what it is with {from:.0}"))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(220, 220, 220))
        .draw()?;
    for (name, power) in THEORIES {
        let theory = |at: f64| (at, (at / from).powi(power));
        let steps = (0..=64).map(|step| from * (to / from).powf(f64::from(step) / 64.0));
        let points = steps.map(theory).filter(|(_, value)| *value <= high);
        let grey = RGBColor(150, 150, 150);
        chart
            .draw_series(DashedLineSeries::new(points, 4, 6, grey.stroke_width(1)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], grey));
    }
    for (colour, (what, points)) in COLOURS.iter().cycle().zip(lines) {
        let points = multiples(points);
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(what)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(160, 160, 160))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}
