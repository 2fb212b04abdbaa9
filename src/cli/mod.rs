//! The command line.

mod config;

pub(crate) use config::{Api, Attach, Config, Detach, Exit, ExitCommand, Logging, Runtime, Stdio};
