//! Decides about children, calls and orphans. No I/O, no clock: events and the time go in, actions come out.
mod timing;

pub use timing::Timing;
