//! Limits: G11 to G14. They need controllers, which a hybrid machine has on v1.

use std::path::Path;

pub(crate) fn are_possible_here() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}
