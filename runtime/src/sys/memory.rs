//! Memory that the start needed for a moment, and that would stay with the process for life.

use nix::unistd::{Pid, SysconfVar, gettid, sysconf};

/// How far below the caller's frame the stack is left alone: for the frames of what is called here.
const KEPT_STACK: usize = 4096;

/// How far down pages are looked for. The start does not need more.
const USED_STACK: usize = 256 * 1024;

/// Gives free pages of the heap (malloc_trim(3)) and of the stack back to the kernel.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
    give_back_stack();
}

#[inline(never)]
fn give_back_stack() {
    // Other threads have stacks of a size that is not known here, and somebody else's memory below them.
    if gettid() != Pid::this() {
        return;
    }
    let here = 0_u8;
    let page =
        sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok()).unwrap_or(4096);
    let end = ((&raw const here).addr() - KEPT_STACK) & !(page - 1);
    let start = end.saturating_sub(USED_STACK);
    // SAFETY: on the first thread's stack, which grows downwards, all below the frames in use is dead: no object lives
    // there, and a signal's handler starts anew. Below that stack the kernel keeps a gap of 1 MiB in which nothing is
    // mapped; where the range reaches into it the call returns an error after it did its work.
    unsafe {
        libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_in_use_stays() {
        let heap = vec![7_u8; 100_000];
        let stack = [9_u8; 10_000];
        super::give_back_memory();
        assert!(heap.iter().all(|&byte| byte == 7) && stack.iter().all(|&byte| byte == 9));
    }
}
