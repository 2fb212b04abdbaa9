//! What reads the kernel's and the runtimes' files, as functions of any bytes, each of which panics where a promise is
//! broken. See `docs/fuzzing.md`.

/// Lists what is fuzzed: for the fuzzers, and as a test each. Here for both crates, as whoever has the one has the other.
#[doc(hidden)]
#[macro_export]
macro_rules! fuzz_targets {
    ($($name:ident: $run:path,)*) => {
        /// The names, which their corpora have as well, and what reads an input.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $run)),*];

        /// Each with its corpus.
        #[cfg(test)]
        mod replay {
            $(
                #[test]
                fn $name() {
                    dunnage_testing::fuzz::replay(stringify!($name), $run);
                }
            )*
        }
    };
}

#[cfg(any(test, fuzzing))]
fuzz_targets! {
    pid_file: crate::driver::fuzzing::pid_file,
    proc_stat: crate::driver::fuzzing::proc_stat,
    proc_children: crate::driver::fuzzing::proc_children,
    limits: crate::generation::fuzzing::limits,
}
