//! The heap's free pages.

/// Gives free pages of the heap back to the kernel (malloc_trim(3)): what the start needed for a moment would stay
/// with the process for life.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
