//! Questions and orders to terminals and pipes that only ioctl(2) takes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// How many bytes a pipe holds that were not read yet (`FIONREAD`).
pub fn unread_bytes(pipe: &impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int to the address given, which is that of a live one.
    let result = unsafe { libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) };
    Errno::result(result)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Sets the size that a terminal's programs see (`TIOCSWINSZ`), and tells them if it changed.
pub fn set_window_size(terminal: &impl AsFd, height: u16, width: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize from the address given, which is that of a live one.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Errno::result(result)?;
    Ok(())
}

/// The size of a terminal, rows and columns (`TIOCGWINSZ`); not of one that never was given any.
pub fn window_size(terminal: &impl AsFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize to the address given, which is that of a live one.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    Errno::result(result).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_pipe_tells_how_much_it_holds() {
        let (reader, mut writer) = io::pipe().expect("pipe");
        assert_eq!(unread_bytes(&reader).expect("FIONREAD"), 0);
        writer.write_all(&[0; 5000]).expect("write");
        assert_eq!(unread_bytes(&reader).expect("FIONREAD"), 5000);
    }

    #[test]
    fn a_file_that_is_no_terminal_has_no_size() {
        let (reader, _writer) = io::pipe().expect("pipe");
        let error = set_window_size(&reader, 24, 80).expect_err("a pipe has no size");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(window_size(&reader), None);
    }

    #[test]
    fn a_terminal_has_the_size_that_it_was_given() {
        let pty = nix::pty::openpty(None, None).expect("openpty");
        assert_eq!(window_size(&pty.slave), None);
        set_window_size(&pty.master, 24, 80).expect("TIOCSWINSZ");
        assert_eq!(window_size(&pty.slave), Some((24, 80)));
    }
}
