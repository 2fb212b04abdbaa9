//! The least that a monitor does, for others to be held against: it starts the runtime from a process of its own, tells the
//! container's pid, waits for its end and leaves an exit file. It logs nothing and serves nobody.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, execv, fork, pipe2, setsid, write};

/// Its whole life, with conmon's options.
pub(crate) fn run(args: &[&OsStr]) -> io::Result<()> {
    let option = |name: &str| {
        let value = args.iter().skip_while(|arg| **arg != name).nth(1);
        value.map(PathBuf::from).ok_or_else(|| io::Error::other(format!("no {name}")))
    };
    let (id, bundle, pid_file) = (option("-c")?, option("-b")?, option("-p")?);
    let (monitor_pid_file, exit_file) = (option("-P")?, option("--exit-dir")?.join(&id));
    // SAFETY: there is one thread.
    if let ForkResult::Parent { child } = unsafe { fork()? } {
        return put(&monitor_pid_file, &child.to_string());
    }
    setsid()?;
    set_child_subreaper(true)?;
    let (_stdout, its_stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let (_stderr, its_stderr) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the caller opened it, for this process and no other.
    let sync = unsafe { BorrowedFd::borrow_raw(3) };
    fcntl(sync, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let words: [&OsStr; 6] = [
        "create".as_ref(),
        "--bundle".as_ref(),
        bundle.as_ref(),
        "--pid-file".as_ref(),
        pid_file.as_ref(),
        id.as_ref(),
    ];
    call_runtime(&option("-r")?, &words, its_stdout, its_stderr)?;
    let pid = fs::read_to_string(&pid_file)?;
    write(sync, format!("{{\"pid\": {pid}}}\n").as_bytes())?;
    let code = match waitpid(Pid::from_raw(pid.parse().map_err(io::Error::other)?), None)? {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        status => return Err(io::Error::other(format!("{status:?}"))),
    };
    put(&exit_file, &code.to_string())
}

/// Runs the runtime to its end.
fn call_runtime(path: &Path, words: &[&OsStr], stdout: OwnedFd, stderr: OwnedFd) -> io::Result<()> {
    let words = [path.as_os_str()].into_iter().chain(words.iter().copied());
    let words = words.map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let null = File::open("/dev/null")?;
    // SAFETY: there is one thread.
    if let ForkResult::Parent { child } = unsafe { fork()? } {
        drop((stdout, stderr));
        waitpid(child, None)?;
        return Ok(());
    }
    dup2_stdin(null)?;
    dup2_stdout(stdout)?;
    dup2_stderr(stderr)?;
    execv(&words[0], &words)?;
    Ok(())
}

/// Makes a file that is whole once it is there.
fn put(path: &Path, content: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, content)?;
    fs::rename(temporary, path)
}
