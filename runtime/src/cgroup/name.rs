//! Names of child cgroups.

use std::fmt;
use std::str::FromStr;

use crate::generation::Role;

/// The longest name of a file.
const MAX: usize = 255;

/// The name of a child: one component of a path, and never that of a file which the kernel puts there, as those all
/// have a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The child that a role begins in.
    #[must_use]
    pub fn of(role: Role) -> Self {
        Self(match role {
            Role::Generation(number) => format!("gen-{number}"),
            Role::Sidecar => "role-sidecar".into(),
            Role::Worker => "host".into(),
        })
    }

    /// A name that a caller gives. Nothing for what is no name of a child, or one that is kept for roles (G28).
    #[must_use]
    pub fn chosen(name: &str) -> Option<Self> {
        let is_kept = name.starts_with("gen-") || name.starts_with("role-") || name == "host";
        name.parse().ok().filter(|_| !is_kept)
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What can be no name of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a cgroup has 1 to {MAX} letters, digits, \"-\", \"_\", \":\" or \"@\"")
    }
}

impl std::error::Error for InvalidName {}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_:@".contains(c);
        if (1..=MAX).contains(&text.len()) && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Number;

    #[test]
    fn g28_a_name_never_leads_outside_the_parent_nor_to_a_file_of_the_kernels() {
        for text in ["gen-1", "role-sidecar", "host", "a_b:c@d", &"x".repeat(255)] {
            assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
        }
        let long = "x".repeat(256);
        for text in ["", ".", "..", "a/b", "/", "cgroup.procs", "memory.max", "a\0", "a\nb", "a b", "ä", &long] {
            assert_eq!(text.parse::<Name>(), Err(InvalidName), "{text:?}");
        }
    }

    #[test]
    fn the_children_have_the_names_of_the_rules() {
        let last = Role::Generation(Number::new(u64::MAX).unwrap());
        assert_eq!(Name::of(last).as_str(), "gen-18446744073709551615");
        for name in [last, Role::Sidecar, Role::Worker].map(Name::of) {
            assert_eq!(Name::chosen(name.as_str()), None);
            assert_eq!(name.as_str().parse(), Ok(name));
        }
    }
}
