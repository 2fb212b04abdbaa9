//! Holds the pages against the code: what they name is there, and what is there they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a directory with this extension, as paths from the root.
fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(directory)).expect("a directory") {
        let path = entry.expect("an entry").path();
        let inside = path.strip_prefix(root()).expect("a path below").to_owned();
        if path.is_dir() {
            found.extend(files(inside.to_str().expect("a name in ASCII"), extension));
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(inside);
        }
    }
    found
}

fn sources() -> Vec<PathBuf> {
    ["src", "records/src", "runtime/src", "runtime/tests", "tests"]
        .iter()
        .flat_map(|directory| files(directory, "rs"))
        .collect()
}

fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs", "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from));
    pages
}

/// What stands between backticks, code blocks aside.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").step_by(2);
    blocks.flat_map(|text| text.split('`').skip(1).step_by(2))
}

/// The name that a line of code begins to define or to list.
fn identifier(line: &str) -> &str {
    let end = line.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(line.len());
    &line[..end]
}

/// The tests of each file.
fn tests() -> BTreeMap<PathBuf, BTreeSet<String>> {
    // Macros that make tests of the functions which they list.
    const LISTS: [&str; 2] = ["rules! {", "with_runc_and_crun! {"];
    let mut tests = BTreeMap::<_, BTreeSet<String>>::new();
    for path in sources() {
        let text = read(&path);
        let (mut is_test, mut in_list) = (false, false);
        for line in text.lines() {
            in_list = LISTS.contains(&line) || (in_list && line != "}");
            let line = line.trim_start();
            let name = match line.strip_prefix("fn ") {
                Some(function) if is_test => identifier(function),
                None if in_list => identifier(line),
                _ => "",
            };
            is_test = line == "#[test]" || (is_test && line.starts_with("#["));
            if !name.is_empty() {
                tests.entry(path.clone()).or_default().insert(name.to_owned());
            }
        }
    }
    tests
}

/// Whether the tests have `name`: `some_test`, `some_*`, or `directory::file::some_test`.
fn is_test(tests: &BTreeMap<PathBuf, BTreeSet<String>>, name: &str) -> bool {
    let (modules, name) = name.rsplit_once("::").unwrap_or(("", name));
    let path = modules.replace("::", "/") + ".rs";
    tests.iter().any(|(file, tests)| {
        (modules.is_empty() || file.ends_with(&path))
            && match name.strip_suffix('*') {
                Some(beginning) => tests.iter().any(|test| test.starts_with(beginning)),
                None => tests.contains(name),
            }
    })
}

/// The rows of a page's tables, as cells.
fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
}

#[test]
fn every_test_that_the_compatibility_page_names_exists() {
    let (page, tests) = (read("docs/compatibility.md"), tests());
    let (mut named, mut missing) = (0, Vec::new());
    for row in rows(&page).filter(|row| row[row.len() - 1] != "tests") {
        let shown_by = row[row.len() - 1];
        assert!(shown_by == "none" || shown_by.contains('`'), "no test: {row:?}");
        named += code_spans(shown_by).count();
        missing.extend(code_spans(shown_by).filter(|name| !is_test(&tests, name)));
    }
    // In the text between the tables names are told by their form.
    let prose: String = page.lines().filter(|line| !line.starts_with('|')).map(|line| line.to_owned() + "\n").collect();
    let sounds_like_one = |name: &&str| name.matches('_').count() > 1 && *name == name.to_lowercase();
    missing.extend(code_spans(&prose).filter(sounds_like_one).filter(|name| !is_test(&tests, name)));
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(named > 200, "{named} names are few: is the page still read?");
}

#[test]
fn every_test_that_the_differences_name_exists() {
    let (page, tests) = (read("docs/differences.md"), tests());
    let (mut named, mut missing) = (0, Vec::new());
    // `(Test: ...)`, `(Tests: ...)`
    for parenthesis in page.split("(Test").skip(1) {
        let (shown_by, _) = parenthesis.split_once(')').unwrap();
        named += 1;
        missing.extend(code_spans(shown_by).filter(|name| !is_test(&tests, name)));
    }
    for row in rows(&page) {
        missing.extend(code_spans(row[1]).filter(|name| name.contains('_') && !is_test(&tests, name)));
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(named > 15, "{named} are few: is the page still read?");
}

#[test]
fn no_difference_is_told_twice() {
    let page = read("docs/differences.md");
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings.len(), headings.iter().collect::<BTreeSet<_>>().len(), "{headings:#?}");
}

/// The kinds of tests that the reaper's page speaks of.
const KINDS: [(&str, &str); 3] =
    [("decider", "runtime/src/reaper/tests"), ("processes", "runtime/tests/processes"), ("shim", "tests")];

#[test]
fn every_rule_of_the_reaper_has_the_tests_and_the_code_that_its_page_says() {
    let (page, tests) = (read("docs/reaper.md"), tests());
    let table = page.split("\n## The rules\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let rules: Vec<_> = rows(table).filter(|row| row[0] != "rule").collect();
    assert_eq!(rules.len(), 22);
    let runtime: String = files("runtime/src", "rs").into_iter().map(read).collect();
    for row in rules {
        let [rule, _, _, code, shown_by] = row[..] else { panic!("{row:?}") };
        // One row refers to the tests of other rules.
        let others: Vec<&str> = shown_by.split(' ').filter(|word| word.starts_with('R')).collect();
        for rule in if others.is_empty() { vec![rule] } else { others } {
            let beginning = format!("{}_", rule.to_lowercase());
            for (_, directory) in KINDS.iter().filter(|(kind, _)| shown_by.contains(kind)) {
                let mut there = tests.iter().filter(|(file, _)| file.starts_with(directory));
                let found = there.any(|(_, tests)| tests.iter().any(|test| test.starts_with(&beginning)));
                assert!(found, "no test of {rule} in {directory}");
            }
        }
        for test in code_spans(shown_by) {
            assert!(is_test(&tests, test), "{rule}: there is no test {test}");
        }
        for span in code_spans(code) {
            let is_path = span.contains('/');
            let is_there = if is_path {
                root().join("runtime/src").join(span).exists() || root().join(span).exists()
            } else {
                let name = span.rsplit("::").next().unwrap();
                ["fn ", "const ", "    "].iter().any(|before| runtime.contains(&format!("{before}{name}")))
            };
            assert!(is_there, "{rule}: there is no {span}");
        }
    }
}

/// What GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { root().join(&page) } else { root().join(&page).parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !section.is_empty() {
                let there = read(target).lines().any(|line| line.starts_with('#') && anchor(line) == section);
                assert!(there, "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn every_crate_has_its_reason() {
    let mut used = BTreeSet::new();
    for manifest in [
        "Cargo.toml",
        "runtime/Cargo.toml",
        "runtime/mutants/Cargo.toml",
        "tests/common/Cargo.toml",
        "tests/varlink/Cargo.toml",
        "fuzz/Cargo.toml",
    ] {
        let mut in_dependencies = false;
        for line in read(manifest).lines() {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if in_dependencies && !line.starts_with('#') && !line.contains("path =") {
                used.extend(
                    line.split_once('=').map(|(name, _)| name.trim().trim_end_matches(".workspace").to_owned()),
                );
            }
        }
    }
    let page = read("docs/dependencies.md");
    let links = page.split("https://crates.io/crates/").skip(1);
    let listed: BTreeSet<String> = links.filter_map(|rest| Some(rest.split(')').next()?.to_owned())).collect();
    assert_eq!(listed, used);
}

#[test]
fn the_design_names_all_parts() {
    let page = read("docs/design.md");
    let tree = page.split("```").nth(1).unwrap();
    let (runtime, shim) = tree.split_once("\nsrc/ ").unwrap();
    for (tree, directory) in [(runtime, "runtime"), (shim, "src")] {
        let lines = tree.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let named: BTreeSet<&str> = lines.filter(|name| !name.is_empty()).collect();
        for name in &named {
            assert!(root().join(directory).join(name).exists(), "there is no {directory}/{name}");
        }
        let sources = if directory == "runtime" { "runtime/src" } else { "src" };
        for entry in fs::read_dir(root().join(sources)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap() + if entry.path().is_dir() { "/" } else { "" };
            let name = if directory == "runtime" { format!("src/{name}") } else { name };
            assert!(named.contains(name.as_str()) || name.ends_with("lib.rs"), "{directory}/{name} is not named");
        }
    }
}

#[test]
fn every_fuzz_target_is_described_and_has_a_corpus() {
    let mut targets = BTreeSet::new();
    for list in ["src/fuzzing/mod.rs", "runtime/src/fuzzing.rs"].map(read) {
        let lines = list.split("fuzz_targets! {\n").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
        targets.extend(lines.lines().map(|line| identifier(line.trim_start()).to_owned()));
    }
    assert!(targets.len() > 20, "{targets:?} are few: are they still found?");
    let page = read("docs/fuzzing.md");
    let table = page.split("\n## The targets\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let described = rows(table).skip(1).map(|row| row[0].trim_matches('`').to_owned()).collect();
    assert_eq!(targets, described);
    let corpora = fs::read_dir(root().join("fuzz/corpus")).unwrap();
    let corpora = corpora.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(targets, corpora);
}

/// The longest part of each warning and error that is the same whatever happened.
fn warnings() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|path| path.starts_with("src") || path.starts_with("runtime/src")) {
        let text = read(&path);
        let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for call in ["warn!(", "error!(", "self.warn(now, format_args!("] {
            for rest in product.split(call).skip(1) {
                // Of a message that is put together elsewhere there is no text here.
                let Some(literal) = rest.trim_start().strip_prefix('"') else { continue };
                let literal = literal.replace("\\\"", "'");
                let literal = literal.split('"').next().unwrap_or_default();
                let parts = literal.split('{').map(|part| part.rsplit('}').next().unwrap_or_default());
                let longest = parts.max_by_key(|part| part.len()).unwrap_or_default();
                let longest = longest.trim_matches(|c: char| !c.is_alphanumeric());
                if !longest.is_empty() {
                    found.push((path.clone(), longest.to_owned()));
                }
            }
        }
    }
    found
}

#[test]
fn every_warning_is_explained() {
    let page = read("docs/operations.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let warnings = warnings();
    let unexplained: Vec<_> = warnings.iter().filter(|(_, text)| !page.contains(text.as_str())).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    assert!(warnings.len() > 40, "{} are few: are they still found?", warnings.len());
}
