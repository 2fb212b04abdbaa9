//! Capabilities (capabilities(7)) that are at hand, and in effect only while something needs them.
//!
//! What reads the container's output, clients' messages and notifications runs without any: a fault there finds nothing
//! to use. What starts programs, signals processes and opens files holds a [`Raised`] meanwhile. A program that is
//! executed gets what it would get anyway: only this process's effective set changes, never the permitted, inheritable,
//! ambient or bounding one.

use std::cell::Cell;

use log::warn;

use crate::sys::{Capabilities, CapabilitySets};

thread_local! {
    /// What to put in effect again, while nothing is. Capabilities are a thread's own.
    static LAID_DOWN: Cell<Option<CapabilitySets>> = const { Cell::new(None) };
}

/// From now on none is in effect but by [`raise`]. Nothing changes for a process that has none.
pub fn lay_down() {
    match CapabilitySets::get() {
        Ok(all) if all.effective == Capabilities::default() => {}
        Ok(all) => lower(all),
        Err(error) => warn!("cannot learn which capabilities there are, and keeps them all: {}", error.desc()),
    }
}

/// Puts all that were laid down in effect, for as long as the answer lives.
#[must_use]
pub fn raise() -> Raised {
    let Some(all) = LAID_DOWN.take() else { return Raised(None) };
    if let Err(error) = all.set() {
        // Nothing is known that could make the kernel refuse what is permitted.
        warn!("cannot use capabilities again: {}", error.desc());
    }
    Raised(Some(all))
}

fn lower(all: CapabilitySets) {
    match (CapabilitySets { effective: Capabilities::default(), ..all }).set() {
        Ok(()) => LAID_DOWN.set(Some(all)),
        Err(error) => warn!("cannot lay down capabilities, and keeps them all: {}", error.desc()),
    }
}

/// Capabilities are in effect until this is dropped. Of several, nested, the first counts.
#[derive(Debug)]
pub struct Raised(Option<CapabilitySets>);

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(all) = self.0.take() {
            lower(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `CapEff` of this thread.
    fn in_effect() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    // Each test has a thread of its own, and so capabilities of its own.
    #[test]
    fn none_is_in_effect_but_while_they_are_raised() {
        let all = in_effect();
        assert_eq!(raise().0, None);
        lay_down();
        assert_eq!(in_effect(), 0);
        {
            let _raised = raise();
            assert_eq!(in_effect(), all);
            drop(raise());
            assert_eq!(in_effect(), all, "the inner one took them away from the outer");
        }
        assert_eq!(in_effect(), 0);
        lay_down();
        drop(raise());
        assert_eq!(in_effect(), 0);
        let _raised = raise();
        assert_eq!(in_effect(), all);
    }
}
