//! Terminals: made by the runtime, sent to the monitor, adopted by the payload.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dunnage_testing::script::Console;
use nix::fcntl::OFlag;
use nix::pty;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// A new terminal: its master and the path of its other side.
pub(crate) fn open() -> nix::Result<(pty::PtyMaster, PathBuf)> {
    let master = pty::posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    pty::grantpt(&master)?;
    pty::unlockpt(&master)?;
    let path = pty::ptsname_r(&master)?.into();
    Ok((master, path))
}

/// Makes the terminal this process's controlling one and its standard streams.
pub(crate) fn adopt(terminal: &Path) -> io::Result<()> {
    nix::unistd::setsid()?;
    // A session leader without a terminal gets the first one it opens.
    let terminal = OpenOptions::new().read(true).write(true).open(terminal)?;
    nix::unistd::dup2_stdin(&terminal)?;
    nix::unistd::dup2_stdout(&terminal)?;
    nix::unistd::dup2_stderr(&terminal)?;
    Ok(())
}

/// Answers on the console socket; what is returned has to stay open.
pub(crate) fn send(socket: &Path, what: Console, master: &pty::PtyMaster) -> io::Result<Vec<OwnedFd>> {
    let stream = UnixStream::connect(socket)?;
    let plain = File::open(fs::canonicalize("/proc/self/exe")?)?;
    match what {
        Console::Terminal => send_fds(&stream, &[master.as_raw_fd()])?,
        Console::PlainFile => send_fds(&stream, &[plain.as_raw_fd()])?,
        Console::NoDescriptor => send_fds(&stream, &[])?,
        Console::TwoDescriptors => send_fds(&stream, &[master.as_raw_fd(), plain.as_raw_fd()])?,
        Console::Nothing => {}
        Console::Silence => return Ok(vec![stream.into()]),
    }
    Ok(Vec::new())
}

fn send_fds(stream: &UnixStream, fds: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let name = [IoSlice::new(b"/dev/ptmx")];
    sendmsg::<()>(stream.as_raw_fd(), &name, rights, MsgFlags::empty(), None)?;
    Ok(())
}
