//! What stands in for a fuzzer in `cargo test`: inputs that one has found, and variations of them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// How many variations are tried, unless `DUNNAGE_FUZZ_RUNS` says otherwise.
const RUNS: u64 = 400;

/// The longest input.
const LENGTH_MAX: usize = 4096;

/// Runs a target on its corpus and on variations of it, the same in each run. `DUNNAGE_FUZZ_SEED` makes them others.
pub fn replay(name: &str, run: fn(&[u8])) {
    let corpus = corpus(name);
    for (path, input) in &corpus {
        attempt(&path.display().to_string(), input, run);
    }
    let number =
        |variable: &str, otherwise| env::var(variable).map_or(otherwise, |value| value.parse().expect("a number"));
    let seed = number("DUNNAGE_FUZZ_SEED", 1);
    for step in 0..number("DUNNAGE_FUZZ_RUNS", RUNS) {
        let mut random = Random::new(seed, step);
        attempt(&format!("variation {step} of seed {seed}"), &vary(&corpus, &mut random), run);
    }
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!paths.is_empty(), "{} is empty", directory.display());
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// Says which input it was if the target panics.
fn attempt(origin: &str, input: &[u8], run: fn(&[u8])) {
    struct Origin<'a>(&'a str, &'a [u8]);

    impl Drop for Origin<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("input: {}: b\"{}\"", self.0, self.1.escape_ascii());
            }
        }
    }

    let _origin = Origin(origin, input);
    run(input);
}

fn vary(corpus: &[(PathBuf, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let (_, original) = &corpus[random.below(corpus.len())];
    let mut input = original.clone();
    for _ in 0..=random.below(6) {
        let start = random.below(input.len() + 1);
        let end = start + random.below((input.len() - start).min(32) + 1);
        match random.below(6) {
            0 => drop(input.drain(start..end)),
            1 => input.insert(start, random.byte()),
            2 => input[start..end].iter_mut().for_each(|byte| *byte = random.byte()),
            3 => {
                let again = input[start..end].to_vec();
                input.splice(start..start, again);
            }
            4 if start < input.len() => input[start] ^= 1 << random.below(8),
            _ => {
                let (_, other) = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.splice(start..end, other[from..].iter().copied());
            }
        }
    }
    input.truncate(LENGTH_MAX);
    input
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn new(seed: u64, step: u64) -> Self {
        let mut random = Self((seed << 32 ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("it is below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}
