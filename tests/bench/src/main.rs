//! Measures dunnage beside conmon: `bench [--quick] [--json FILE] [--svg FILE] [GROUP...]`.
//!
//! With `--quick` it only measures what no load changes, and fails where a limit is exceeded.

// A panic is how a measurement that cannot be made ends.
#![expect(clippy::expect_used, reason = "a bench that cannot measure has nothing else to do")]

mod bench;
mod counts;
mod figure;
mod measure;
mod picture;
mod proc;
mod quick;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use bench::Bench;
use figure::Figure;

#[derive(Default)]
struct Options {
    quick: bool,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
    groups: Vec<String>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = Some(words.next()?.into()),
                "--svg" => options.svg = Some(words.next()?.into()),
                group if measure::GROUPS.iter().any(|known| known.name == group) => options.groups.push(word),
                _ => return None,
            }
        }
        Some(options)
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(env::args().skip(1)) else {
        let groups: Vec<&str> = measure::GROUPS.iter().map(|group| group.name).collect();
        eprintln!("usage: bench [--quick] [--json FILE] [--svg FILE] [{}]...", groups.join(" | "));
        return ExitCode::from(2);
    };
    let bench = Bench::new();
    let figures = if options.quick { quick::figures(&bench) } else { full(&bench, &options.groups) };
    print!("{}", report::table(&figures));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report::json(&figures)).expect("JSON");
        fs::write(path, text + "\n").expect("the JSON file can be written");
    }
    if let Some(path) = &options.svg {
        fs::write(path, picture::svg(&figures)).expect("the SVG file can be written");
    }
    if options.quick && figures.iter().any(|figure| figure.met() == Some(false)) {
        eprintln!("bench: a limit is exceeded");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn full(bench: &Bench, groups: &[String]) -> Vec<Figure> {
    let wanted = |name: &str| groups.is_empty() || groups.iter().any(|group| group == name);
    let groups = measure::GROUPS.iter().filter(|group| wanted(group.name));
    groups
        .flat_map(|group| {
            eprintln!("bench: {}", group.name);
            (group.measure)(bench)
        })
        .collect()
}
