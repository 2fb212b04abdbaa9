//! The figures as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::figure::{Figure, Samples};

/// A number with three digits that count.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        n if !n.is_finite() => "-".to_owned(),
        n if n >= 100.0 || n == 0.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// A table in Markdown: medians, their ratio, the goal, and whether it is met.
pub(crate) fn table(figures: &[Figure]) -> String {
    let header = ["", "unit", "dunnage", "beside", "", "ratio", "goal", "met"].map(str::to_owned);
    let rows: Vec<[String; 8]> = figures.iter().map(row).collect();
    let mut widths = [0; 8];
    for row in rows.iter().chain([&header]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: &[String; 8]| {
        for (cell, width) in cells.iter().zip(widths) {
            // A String takes all that is written to it.
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    line(&header);
    line(&widths.map(|width| "-".repeat(width)));
    rows.iter().for_each(line);
    text
}

fn row(figure: &Figure) -> [String; 8] {
    let (value, name) = figure
        .beside
        .as_ref()
        .map_or_else(Default::default, |(name, samples)| (short(samples.median()), (*name).to_owned()));
    let met = figure.met().map_or("", |met| if met { "yes" } else { "NO" });
    [
        figure.what.clone(),
        figure.unit.to_owned(),
        short(figure.dunnage.median()),
        value,
        name,
        figure.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        figure.goal.to_string(),
        met.to_owned(),
    ]
}

/// All that is known of each figure.
pub(crate) fn json(figures: &[Figure]) -> Value {
    let samples = |samples: &Samples| json!({"median": samples.median(), "min": samples.min(), "max": samples.max(), "samples": samples.0});
    let figures = figures.iter().map(|figure| {
        json!({
            "what": figure.what.trim(),
            "unit": figure.unit,
            "dunnage": samples(&figure.dunnage),
            "beside": figure.beside.as_ref().map(|(name, beside)| json!({"name": name, "figure": samples(beside)})),
            "ratio": figure.ratio(),
            "goal": figure.goal.to_string(),
            "met": figure.met(),
        })
    });
    json!({"figures": figures.collect::<Vec<_>>()})
}
