//! What the tests share.
//!
//! A [`Sandbox`] is a test's own directory with a bundle in it; what was started in it is killed and removed when it
//! goes, also after a panic. A [`Monitor`] is the command line of the monitor as Podman makes it, changed by the test;
//! once started it is [`Running`]. A [`Script`] says what the fake runtime and its container do.
//!
//! On real runtimes a [`Bundle`] takes the script's place; a [`Podman`] has containers of its own.
//!
//! Every wait has a bound and says what it waited for. A helper that cannot do its work panics: the test has failed.

// A panic is how a test fails, and what a test does not look at it need not use.
#![allow(clippy::missing_panics_doc, clippy::must_use_candidate)]

mod caller;
mod cgroups;
mod client;
pub mod dunnagectl;
mod facts;
pub mod fuzz;
pub mod journal;
mod log;
mod monitor;
mod oci;
mod podman;
mod process;
mod program;
mod running;
mod sandbox;
pub mod script;
mod terminal;
mod tool;
pub mod vm;
pub mod wait;
mod wire;

pub use caller::{Caller, decode};
pub use cgroups::without_hybrid_cgroups;
pub use client::{Client, Output};
pub use dunnagectl::Dunnagectl;
pub use facts::{Facts, Fd, command_line, descriptors, mode, status, tree};
pub use journal::{Journal, JournalEntry};
pub use log::{Entry, Log};
pub use monitor::{Monitor, SyncPipe};
pub use oci::{Bundle, Runtime};
pub use podman::Podman;
pub use process::{Process, Status};
pub use program::{Finished, Program};
pub use running::Running;
pub use sandbox::{Event, Sandbox};
pub use script::{Console, Out, Script, Sink, Step};
pub use terminal::Terminal;
pub use tool::Tool;
pub use wire::Wire;
