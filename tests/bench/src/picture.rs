//! The ratios as a picture.

use std::fmt::Write;

use crate::figure::{Figure, Goal};
use crate::report::short;

const WIDTH: f64 = 900.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 190.0;
const BARS: f64 = WIDTH - LABELS - VALUES;
const ROW: f64 = 26.0;

/// A figure that is drawn.
struct Bar<'a> {
    figure: &'a Figure,
    ratio: f64,
    goal: f64,
}

/// Two charts: what is to be small, and what is to be large, each as a multiple of conmon's.
pub(crate) fn svg(figures: &[Figure]) -> String {
    let beside_conmon = |figure: &&Figure| figure.beside.as_ref().is_some_and(|(name, _)| *name == "conmon");
    let bars = |wanted: fn(Goal) -> Option<f64>| -> Vec<Bar> {
        figures
            .iter()
            .filter(beside_conmon)
            .filter_map(|figure| Some(Bar { figure, ratio: figure.ratio()?, goal: wanted(figure.goal)? }))
            .collect()
    };
    let small = bars(|goal| if let Goal::AtMostTimes(most) = goal { Some(most) } else { None });
    let large = bars(|goal| if let Goal::AtLeastTimes(least) = goal { Some(least) } else { None });
    let mut body = String::new();
    let mut y = 20.0;
    for (title, bars) in [("Shorter is better: time and memory", small), ("Longer is better: bytes a second", large)] {
        if !bars.is_empty() {
            y = chart(&mut body, y, title, &bars) + 24.0;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>dunnage beside conmon</title>\n\
         <rect width=\"{WIDTH}\" height=\"{y}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws one chart from `y` downwards, and says where it ends.
fn chart(body: &mut String, mut y: f64, title: &str, bars: &[Bar]) -> f64 {
    let most = bars.iter().flat_map(|bar| [bar.ratio, bar.goal, 1.0]).fold(0.0, f64::max) * 1.05;
    let x = |ratio: f64| LABELS + ratio / most * BARS;
    // A String takes all that is written to it.
    let _ = writeln!(
        body,
        "<text x=\"12\" y=\"{}\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\" font-size=\"12\">\
         black mark: the goal</text>",
        y + 8.0,
        WIDTH - 12.0,
        y + 8.0
    );
    y += 24.0;
    let top = y - 2.0;
    for bar in bars {
        let met = bar.figure.met() == Some(true);
        let middle = y + ROW / 2.0;
        let what = bar.figure.what.trim();
        let (_, conmon) = bar.figure.beside.as_ref().expect("a bar has a ratio");
        let unit = bar.figure.unit;
        let _ = writeln!(body, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{what}</text>", LABELS - 8.0, middle + 4.5);
        let _ = writeln!(
            body,
            "<rect x=\"{LABELS}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            y + 4.0,
            x(bar.ratio) - LABELS,
            ROW - 8.0,
            if met { "#2f7d5b" } else { "#b5651d" }
        );
        let _ = writeln!(
            body,
            "<path d=\"M{0:.1} {1}V{2}\" stroke=\"#111\" stroke-width=\"2.5\"/>",
            x(bar.goal),
            y + 1.0,
            y + ROW - 1.0
        );
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\">{:.2} ({} : {} {unit})</text>",
            WIDTH - VALUES + 8.0,
            middle + 4.5,
            bar.ratio,
            short(bar.figure.dunnage.median()),
            short(conmon.median())
        );
        y += ROW;
    }
    let _ = writeln!(
        body,
        "<path d=\"M{0:.1} {top}V{y}\" stroke=\"#777\" stroke-dasharray=\"4 3\"/>\n\
         <text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\" fill=\"#555\" font-size=\"12\">conmon = 1</text>",
        x(1.0),
        y + 14.0
    );
    y + 20.0
}
