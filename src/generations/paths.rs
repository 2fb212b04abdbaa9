//! The names of a service's sockets and fifos (G1, G2).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::generation::Number;

use super::Layout;

/// What is added to a socket's path for the control socket beside it.
const CONTROL: &str = ".control";

/// What a nested generation's own socket is called, in the directory that its container sees.
pub(crate) const NESTED_SOCKET: &str = "app.sock";

/// Where a service's things are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The service's name.
    pub(crate) service: OsString,
    /// `run_dir`
    pub(crate) run_dir: PathBuf,
    /// `canonical_socket`: where clients connect.
    pub(crate) canonical: PathBuf,
    /// `cgroup`: the parent of all children.
    pub(crate) cgroup: PathBuf,
}

/// The sockets of one generation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// Where it serves.
    pub(crate) socket: PathBuf,
    /// Where it notifies.
    pub(crate) control: PathBuf,
}

impl Sockets {
    fn at(socket: PathBuf) -> Self {
        let control = with_suffix(socket.as_os_str(), CONTROL).into();
        Self { socket, control }
    }

    /// The same in the directory `home`, where a container sees its own.
    pub(crate) fn inside(&self, home: &Path) -> Self {
        Self::at(home.join(self.socket.file_name().unwrap_or_default()))
    }
}

impl Places {
    /// The sockets on the canonical path itself.
    pub(crate) fn on_canonical(&self) -> Sockets {
        Sockets::at(self.canonical.clone())
    }

    fn flat(&self, number: impl std::fmt::Display) -> Sockets {
        Sockets::at(self.run_dir.join(with_suffix(&self.service, &format!(".g{number}.sock"))))
    }

    fn nested(&self, number: impl std::fmt::Display) -> Sockets {
        Sockets::at(self.run_dir.join(format!("g{number}")).join(NESTED_SOCKET))
    }

    /// The longest control socket that there can be.
    pub(super) fn longest_control(&self, nested: bool) -> PathBuf {
        if nested { self.nested(u64::MAX).control } else { self.flat(u64::MAX).control }
    }

    /// The name of a private bundle in the run directory, such as `web.g7.bundle`.
    pub(crate) fn bundle(&self, whose: &str) -> OsString {
        with_suffix(&self.service, &format!(".{whose}.bundle"))
    }

    /// Whose private bundle has that name, if one has.
    pub(crate) fn whose_bundle(&self, name: &OsStr) -> Option<String> {
        let rest = name.as_bytes().strip_prefix(self.service.as_bytes())?;
        let whose = rest.strip_prefix(b".")?.strip_suffix(b".bundle")?;
        String::from_utf8(whose.to_vec()).ok()
    }

    /// The name of a fifo in the run directory, such as `web.g7.stdout`, beside which the container sees nothing.
    pub(crate) fn fifo(&self, whose: &str, stream: &str) -> OsString {
        with_suffix(&self.service, &format!(".{whose}.{stream}"))
    }
}

impl Layout {
    /// The sockets that a generation has to itself (G2).
    pub(crate) fn paths(&self, number: Number) -> Option<Sockets> {
        match self {
            Self::Flat(places) => Some(places.flat(number)),
            Self::Nested(places, _) => Some(places.nested(number)),
            Self::Foreign(..) | Self::Barred(..) | Self::Unit => None,
        }
    }

    /// The sockets that a generation serves on, its own or the canonical one.
    pub(crate) fn sockets(&self, number: Number) -> Option<Sockets> {
        match self {
            Self::Foreign(places, _) => Some(places.on_canonical()),
            _ => self.paths(number),
        }
    }

    /// Which generation's own socket that is: what a canonical link says of who is current (G16).
    pub(crate) fn owner(&self, socket: &Path) -> Option<Number> {
        let places = self.places()?;
        let below = socket.strip_prefix(&places.run_dir).ok()?.to_str()?;
        let digits = match self {
            Self::Flat(_) => below.strip_prefix(places.service.to_str()?)?.strip_prefix(".g")?.strip_suffix(".sock")?,
            Self::Nested(..) => below.strip_prefix('g')?.strip_suffix(NESTED_SOCKET)?.strip_suffix('/')?,
            _ => return None,
        };
        let number = Number::new(digits.parse().ok()?)?;
        // Written in the one way that names have.
        (self.paths(number)?.socket == socket).then_some(number)
    }
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generations::service::{Bar, BarKind, Runtime};

    fn places() -> Places {
        Places {
            service: "web".into(),
            run_dir: "/run/dunnage/web".into(),
            canonical: "/run/web.sock".into(),
            cgroup: "/sys/fs/cgroup/web".into(),
        }
    }

    fn nested() -> Layout {
        Layout::Nested(places(), Runtime { path: "/usr/bin/runc".into(), args: Vec::new() })
    }

    fn sockets(socket: &str, control: &str) -> Sockets {
        Sockets { socket: socket.into(), control: control.into() }
    }

    #[test]
    fn g2_paths_are_those_of_the_layout_and_nothing_is_made() {
        let seven = Number::new(7).unwrap();
        let flat = sockets("/run/dunnage/web/web.g7.sock", "/run/dunnage/web/web.g7.sock.control");
        assert_eq!(Layout::Flat(places()).paths(seven), Some(flat));
        let within = sockets("/run/dunnage/web/g7/app.sock", "/run/dunnage/web/g7/app.sock.control");
        assert_eq!(nested().paths(seven), Some(within));
        let bar = |kind| Bar { kind, reason: "why".to_owned() };
        for none in [
            Layout::Foreign(places(), None),
            Layout::Barred(places(), bar(BarKind::Fenced)),
            Layout::Barred(places(), bar(BarKind::Conflict)),
            Layout::Unit,
        ] {
            assert_eq!(none.paths(seven), None);
        }
        assert!(!Path::new("/run/dunnage/web").exists());
        let foreign = Layout::Foreign(places(), None).sockets(seven);
        assert_eq!(foreign, Some(sockets("/run/web.sock", "/run/web.sock.control")));
        assert_eq!(Layout::Unit.sockets(seven), None);
    }

    #[test]
    fn g29_fifos_are_beside_what_containers_see() {
        assert_eq!(places().fifo("g7", "stdout"), "web.g7.stdout");
        assert_eq!(places().fifo("worker", "stderr"), "web.worker.stderr");
    }

    #[test]
    fn g16_the_link_tells_whose_socket_it_names() {
        for layout in [Layout::Flat(places()), nested()] {
            for number in [1, 7, u64::MAX] {
                let number = Number::new(number).unwrap();
                assert_eq!(layout.owner(&layout.paths(number).unwrap().socket), Some(number));
            }
        }
        let flat = Layout::Flat(places());
        for other in [
            "",
            "web.g7.sock",
            "/run/dunnage/web/web.g7.sock.control",
            "/run/dunnage/web/web.g07.sock",
            "/run/dunnage/web/web.g+7.sock",
            "/run/dunnage/web/web.g0.sock",
            "/run/dunnage/web/api.g7.sock",
            "/run/dunnage/web/x/web.g7.sock",
            "/run/dunnage/web/g7/app.sock",
            "/run/web.g7.sock",
        ] {
            assert_eq!(flat.owner(Path::new(other)), None, "{other}");
        }
        assert_eq!(nested().owner(Path::new("/run/dunnage/web/g7app.sock")), None);
        assert_eq!(Layout::Foreign(places(), None).owner(Path::new("/run/dunnage/web/web.g7.sock")), None);
    }
}
