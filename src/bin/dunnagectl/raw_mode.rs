//! A terminal whose keys go to a process as they are typed.

use std::io;
use std::panic;
use std::sync::{Mutex, Once};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::error::{Context, Result};

/// How the terminal was, while it is raw.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// While this is there stdin's terminal is raw. It is what it was also after a panic, which may end the process without
/// dropping anything; the signals that would end it are caught by who holds this.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Makes it raw.
    pub(crate) fn enter() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                restore();
                usual(panic);
            }));
        });
        let what = || "cannot make the terminal raw";
        let found = tcgetattr(io::stdin()).context(what)?;
        let mut raw = found.clone();
        cfmakeraw(&mut raw);
        if let Ok(mut saved) = SAVED.lock() {
            *saved = Some(found);
        }
        let guard = Self(());
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw).context(what)?;
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let saved = SAVED.lock().ok().and_then(|mut saved| saved.take());
    if let Some(saved) = saved {
        // Best effort: the terminal may be gone.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &saved);
    }
}
