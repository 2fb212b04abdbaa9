//! The logs of whole monitors: limits, files that are kept, attacks on paths, and real journals.

mod file;
mod journal;
