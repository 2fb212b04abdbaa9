//! What the end of a container leaves behind: the exit files.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use dunnage_runtime::privileges;
use log::warn;

use crate::cli::Exit;
use crate::whole_file::{CommittedFile, WholeFile};

/// The exit files that could be written.
#[derive(Debug, Default)]
pub(crate) struct ExitFiles(Vec<CommittedFile>);

impl ExitFiles {
    /// Writes the code to `PERSIST/exit`, then to `EXITDIR/ID`, whose appearance tells the caller. If one cannot be
    /// written, the other still is.
    pub(crate) fn write(exit: &Exit, id: &OsStr, code: i32) -> Self {
        let _raised = privileges::raise();
        let persist = exit.persist_dir.as_ref().map(|directory| directory.join("exit"));
        let exit_dir = exit.dir.as_ref().map(|directory| directory.join(id));
        Self(persist.into_iter().chain(exit_dir).filter_map(|path| write(&path, code)).collect())
    }

    /// Makes them durable, which may take as long as the disk does. The caller may have removed them by now.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // One does not keep the other from it.
        self.0.iter().map(CommittedFile::sync).fold(Ok(()), Result::and)
    }

    /// What [`ExitFiles::sync`] needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(CommittedFile::descriptors)
    }
}

fn write(path: &Path, code: i32) -> Option<CommittedFile> {
    WholeFile::create(path)
        .and_then(|file| file.commit(code.to_string().as_bytes()))
        .inspect_err(|error| warn!("cannot write the exit file {}: {error}", path.display()))
        .ok()
}
