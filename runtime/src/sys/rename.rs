//! Renaming within a directory in the ways of renameat2(2).
//!
//! By its number: nix and older C libraries have it for glibc only.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::NixPath;
use nix::errno::Errno;

/// Gives `from`, a name in `directory`, the name `to`. `EEXIST` if something has that already.
pub fn rename_to_free_name<P: NixPath + ?Sized>(directory: &impl AsFd, from: &P, to: &P) -> io::Result<()> {
    rename(directory, from, to, libc::RENAME_NOREPLACE)
}

/// Gives each of two files in `directory` the other's name, in one step.
pub fn exchange_names<P: NixPath + ?Sized>(directory: &impl AsFd, one: &P, other: &P) -> io::Result<()> {
    rename(directory, one, other, libc::RENAME_EXCHANGE)
}

fn rename<P: NixPath + ?Sized>(directory: &impl AsFd, from: &P, to: &P, flags: libc::c_uint) -> io::Result<()> {
    let fd = directory.as_fd().as_raw_fd();
    let result = from.with_nix_path(|from| {
        to.with_nix_path(|to| {
            // SAFETY: the descriptor is open, both names are C strings that live through the call.
            unsafe { libc::syscall(libc::SYS_renameat2, fd, from.as_ptr(), fd, to.as_ptr(), flags) }
        })
    })??;
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_has_the_name_keeps_it_unless_both_are_exchanged() {
        let path = std::env::temp_dir().join(format!("dunnage-rename-{}", std::process::id()));
        fs::create_dir(&path).expect("create_dir");
        for name in ["mine", "theirs"] {
            fs::write(path.join(name), name).expect("write");
        }
        let directory = File::open(&path).expect("open");
        let error = rename_to_free_name(&directory, "mine", "theirs").expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        rename_to_free_name(&directory, "mine", "free").expect("it is free");
        let texts = ["theirs", "free"].map(|name| fs::read_to_string(path.join(name)).expect("read"));
        assert_eq!(texts, ["theirs", "mine"]);
        exchange_names(&directory, "theirs", "free").expect("both are there");
        let texts = ["theirs", "free"].map(|name| fs::read_to_string(path.join(name)).expect("read"));
        assert_eq!(texts, ["mine", "theirs"]);
        fs::remove_dir_all(&path).expect("remove_dir_all");
    }
}
