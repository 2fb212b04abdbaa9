//! The cgroup v2 tree below a service's own cgroup: children with limits, their end, and the proof of it.
//!
//! [`Parent`] is the service's cgroup, held open; all below it is reached from there, by descriptor. A [`Cgroup`] is one
//! directory. What takes time is an object that is driven by calls: [`Eviction`] kills and proves, [`Removal`] removes,
//! [`Migration`] moves. Each is asked to `advance` when its watched file has an event, when its `next_timeout` is due,
//! and whenever its owner thinks that something may have happened; no such call waits for anything.
//!
//! Two calls may wait for the kernel, for seconds: [`Cgroup::set_limits`] where it lowers memory limits, and
//! [`Cgroup::reclaim`]. They are for a process of their own: all state is in descriptors, which a forked child has as
//! well. [`Parent::make`] writes limits too, but of a cgroup that has no memory yet.

mod backoff;
mod controllers;
mod directory;
mod error;
mod events;
mod eviction;
mod left;
mod limits;
mod migration;
mod name;
mod node;
mod parent;
mod removal;
mod watched;

pub use controllers::Controllers;
pub use error::CgroupError;
pub use events::Events;
pub use eviction::{Eviction, Intent, Proof, Unproven};
pub use left::{Left, LeftProcess};
pub use migration::{Migration, Moved};
pub use name::{InvalidName, Name};
pub use node::{Cgroup, Kind};
pub use parent::Parent;
pub use removal::{Removal, Removed};
