//! Processes for dunnage: starting them, watching them through pidfds, reaping them, and the event loop around that.
//!
//! This crate knows nothing of conmon. [`reaper`] decides and does no I/O, [`driver`] carries its decisions out, [`sys`]
//! holds the only unsafe code.

#![deny(unsafe_code)]

pub mod cgroup;
pub mod deadlines;
pub mod driver;
pub mod event_loop;
#[doc(hidden)]
pub mod fuzzing;
pub mod generation;
pub mod privileges;
pub mod reaper;
pub mod sys;
