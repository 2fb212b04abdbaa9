//! The measurements, in groups that can be run alone.

mod bytes;
mod execs;
mod generations;
mod life;
mod orphans;

pub(crate) use life::is_dynamic;

use crate::bench::Bench;
use crate::figure::Figure;

/// A group of figures.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Bench) -> Vec<Figure>,
}

/// All of them.
pub(crate) const GROUPS: [Group; 11] = [
    Group { name: "start", measure: life::start_and_exit },
    Group { name: "runc", measure: life::with_runc },
    Group { name: "memory", measure: life::memory },
    Group { name: "log", measure: bytes::log },
    Group { name: "attach", measure: bytes::attach },
    Group { name: "stdin", measure: bytes::stdin },
    Group { name: "idle", measure: life::idle },
    Group { name: "orphans", measure: orphans::orphans },
    Group { name: "exec", measure: execs::execs },
    Group { name: "generations", measure: generations::generations },
    Group { name: "binary", measure: life::binary },
];
