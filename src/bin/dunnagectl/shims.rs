//! Finds the monitors' control sockets.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::definition::{DIRECTORY, DIRECTORY_VARIABLE};
use crate::error::{Result, failure};

/// How much of an id is shown, as engines do.
const SHORT_ID: usize = 12;

/// Where to look.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    socket: Option<PathBuf>,
}

/// A monitor with a control socket.
#[derive(Clone, Debug)]
pub(crate) struct Shim {
    path: PathBuf,
    id: String,
}

impl Shim {
    fn at(path: PathBuf) -> Self {
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { path, id }
    }

    /// Its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The container's id, by the socket's name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// What it is called where there is little room.
    pub(crate) fn label(&self) -> &str {
        short(&self.id)
    }

    /// What it says of itself.
    pub(crate) fn status(&self) -> Result<Value> {
        Connection::open(self)?.call("Status", &json!({}))
    }
}

/// An id as far as it is shown.
pub(crate) fn short(id: &str) -> &str {
    let is_hash = id.len() > SHORT_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { &id[..SHORT_ID] } else { id }
}

impl Place {
    /// As the command line says.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        Self {
            directory: matches.get_one("dir").cloned().unwrap_or_else(|| DIRECTORY.into()),
            socket: matches.get_one("socket").cloned(),
        }
    }

    /// Whether the socket is named, and no ID is.
    pub(crate) fn names_socket(&self) -> bool {
        self.socket.is_some()
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// All there are, by their ids; the named one alone, if one is.
    pub(crate) fn all(&self) -> Result<Vec<Shim>> {
        if let Some(socket) = &self.socket {
            return Ok(vec![Shim::at(socket.clone())]);
        }
        let directory = self.directory.display();
        let entries = fs::read_dir(&self.directory).or_else(|error| match error.kind() {
            ErrorKind::NotFound => failure(format_args!(
                "there is no directory {directory}, so no container with a control socket in it; monitors make it when \
                 started with {DIRECTORY_VARIABLE}={directory}, see dunnagectl(1)"
            )),
            ErrorKind::PermissionDenied => failure(format_args!(
                "{directory} is not for this user: run dunnagectl as root, or as the user that runs the containers"
            )),
            _ => failure(format_args!("cannot read {directory}: {error}; --dir names another directory")),
        })?;
        let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        let mut shims: Vec<Shim> =
            sockets.map(|entry| Shim::at(entry.path())).filter(|shim| !shim.is_unplaced()).collect();
        shims.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(shims)
    }

    /// The one that is meant by an id, the beginning of one, or a name.
    pub(crate) fn find(&self, id: Option<&String>) -> Result<Shim> {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return match &self.socket {
                Some(socket) => Ok(Shim::at(socket.clone())),
                None => failure("which container? Give its ID, or --socket PATH; dunnagectl ps lists them"),
            };
        };
        if self.socket.is_some() {
            return failure(format_args!("{id} and --socket both say which container is meant: leave one out"));
        }
        let shims = self.all()?;
        if let Some(shim) = shims.iter().find(|shim| shim.id == *id) {
            return Ok(shim.clone());
        }
        let mut matching: Vec<&Shim> = shims.iter().filter(|shim| shim.id.starts_with(id.as_str())).collect();
        if matching.is_empty() {
            // One that does not answer has no name here.
            let is_called = |shim: &&Shim| shim.status().is_ok_and(|status| status["name"] == id.as_str());
            matching = shims.iter().filter(is_called).collect();
        }
        let directory = self.directory.display();
        match matching[..] {
            [shim] => Ok(shim.clone()),
            [] => failure(format_args!(
                "no container {id} has a control socket in {directory}: it has ended, or was started without one; \
                 dunnagectl ps lists those there are"
            )),
            _ => {
                let ids: Vec<&str> = matching.iter().map(|shim| shim.id()).collect();
                failure(format_args!("{id} may be any of {}: give more of the id", ids.join(", ")))
            }
        }
    }
}

impl Shim {
    /// Whether it is a socket that is not in its place yet.
    pub(crate) fn is_unplaced(&self) -> bool {
        self.id.starts_with('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_and_names_are_not() {
        assert_eq!(short("0123456789abcdef0123"), "0123456789ab");
        assert_eq!(short("a-long-name-by-hand"), "a-long-name-by-hand");
        assert_eq!(short("box"), "box");
    }
}
