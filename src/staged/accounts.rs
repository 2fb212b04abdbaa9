//! Users and groups by name, read from the files themselves: without NSS, which is a dynamic library of the host's.

use std::fs::File;
use std::io::Read;

use dunnage_runtime::sys::Identity;

/// Who a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

impl Account {
    /// Digits alone are a number. Nothing where they are none that a process can have: the kernel takes the largest
    /// for "as it is".
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true if text.is_empty() => None,
            true => text.parse().ok().filter(|&id| id != u32::MAX).map(Self::Id),
            false => Some(Self::Name(text.to_owned())),
        }
    }
}

/// The user that a manifest wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) user: Account,
    /// Its group, where that is not the one of its line in /etc/passwd.
    pub(crate) group: Option<Account>,
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The most that is read of either file.
const MAX_FILE: u64 = 16 << 20;

/// Finds out who a process is to run as. It reads files, so not in the loop.
///
/// Without a user it is who this process runs as; `own` tells that. Supplementary groups that are not given are those of
/// the user's in /etc/group.
pub(crate) fn resolve(
    user: Option<&User>,
    groups: Option<&[Account]>,
    own: (u32, u32),
) -> Result<Option<Identity>, String> {
    if user.is_none() && groups.is_none() {
        return Ok(None);
    }
    let accounts = Accounts { passwd: read(PASSWD)?, group: read(GROUP)? };
    accounts.resolve(user, groups, own).map(Some)
}

/// A file that is not there is empty.
fn read(path: &str) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text)) {
        Ok(length) if length as u64 > MAX_FILE => Err(format!("{path} is larger than {MAX_FILE} bytes")),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot read {path}: {error}")),
        _ => Ok(text),
    }
}

/// What is in the two files.
struct Accounts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Accounts {
    fn resolve(&self, user: Option<&User>, groups: Option<&[Account]>, own: (u32, u32)) -> Result<Identity, String> {
        let (uid, gid, usual_groups) = match user {
            None => (own.0, own.1, Vec::new()),
            Some(user) => self.user(user)?,
        };
        let groups = match groups {
            None => usual_groups,
            Some(groups) => groups.iter().map(|group| self.gid(group)).collect::<Result<_, _>>()?,
        };
        Ok(Identity { uid, gid, groups })
    }

    fn user(&self, User { user, group }: &User) -> Result<(u32, u32, Vec<u32>), String> {
        let known = entries(&self.passwd).find(|entry| match user {
            Account::Id(uid) => entry.id == *uid,
            Account::Name(name) => entry.name == name.as_bytes(),
        });
        let (uid, gid, groups) = match (user, known) {
            (_, Some(entry)) => {
                let gid = number(entry.rest.first().copied().unwrap_or_default());
                (entry.id, gid, self.groups_of(entry.name))
            }
            (Account::Id(uid), None) => (*uid, None, Vec::new()),
            (Account::Name(name), None) => return Err(format!("{PASSWD} has no user {name:?}")),
        };
        let gid = match group {
            Some(group) => self.gid(group)?,
            None => {
                gid.ok_or_else(|| format!("{PASSWD} has no user {uid}: name its group as well, as in {uid}:GROUP"))?
            }
        };
        Ok((uid, gid, groups))
    }

    fn gid(&self, group: &Account) -> Result<u32, String> {
        match group {
            Account::Id(gid) => Ok(*gid),
            Account::Name(name) => {
                let known = entries(&self.group).find(|entry| entry.name == name.as_bytes());
                known.map(|entry| entry.id).ok_or_else(|| format!("{GROUP} has no group {name:?}"))
            }
        }
    }

    /// The groups that list `user` as a member, in the file's order.
    fn groups_of(&self, user: &[u8]) -> Vec<u32> {
        let lists = |entry: &Entry<'_>| {
            let members = entry.rest.first().copied().unwrap_or_default();
            members.split(|&byte| byte == b',').any(|member| member.trim_ascii() == user)
        };
        let mut groups = Vec::new();
        for entry in entries(&self.group).filter(lists) {
            if !groups.contains(&entry.id) {
                groups.push(entry.id);
            }
        }
        groups
    }
}

/// A line of either file: name, password, number, and what follows.
struct Entry<'a> {
    name: &'a [u8],
    id: u32,
    rest: Vec<&'a [u8]>,
}

/// The lines that are well-formed. As glibc does, others are skipped, and so are comments and the `+` and `-` of NIS.
fn entries(text: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.trim_ascii_start().split(|&byte| byte == b':');
        let name = fields.next().filter(|name| !matches!(name.first(), None | Some(b'#' | b'+' | b'-')))?;
        let id = number(fields.nth(1)?)?;
        Some(Entry { name, id, rest: fields.collect() })
    })
}

fn number(digits: &[u8]) -> Option<u32> {
    match Account::parse(std::str::from_utf8(digits).ok()?)? {
        Account::Id(id) => Some(id),
        Account::Name(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
        # app:x:1:1::/:\n\
        broken\n\
        app:x\n\
        app:x:ten:10::/:/bin/sh\n\
        app:x:4294967295:10::/:/bin/sh\n\
        app:x:-1:10::/:/bin/sh\n\
        app:x:99999999999:10::/:/bin/sh\n\
        +app:x:9:9::/:/bin/sh\n\
        \t app:x:1000:1001:App,,,:/srv:/bin/false\n\
        app:x:2000:2000::/:/bin/sh\n\
        nogid:x:1002\n\
        short:x:1003:1004";

    const GROUP: &str = "root:x:0:\n\
        app:x:1001:\n\
        broken:x\n\
        adm:x:4:syslog,app\n\
        disk:x:6:apple, app ,x\n\
        again:x:6:app\n\
        backwards:x:app:7\n\
        audio:x:29:apple\n\
        -nis:x:30:app\n\
        last:x:31:app";

    fn identity(user: Option<&str>, groups: Option<&[&str]>) -> Result<Identity, String> {
        let user = user.map(|text| {
            let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
            User { user: Account::parse(user).unwrap(), group: group.map(|group| Account::parse(group).unwrap()) }
        });
        let groups: Option<Vec<Account>> =
            groups.map(|groups| groups.iter().map(|group| Account::parse(group).unwrap()).collect());
        let accounts = Accounts { passwd: PASSWD.into(), group: GROUP.into() };
        accounts.resolve(user.as_ref(), groups.as_deref(), (7, 8))
    }

    #[test]
    fn g10_names_are_looked_up_past_lines_that_are_broken() {
        for (user, groups, uid, gid, supplementary) in [
            (Some("app"), None, 1000, 1001, &[4, 6, 31][..]),
            (Some("1000"), None, 1000, 1001, &[4, 6, 31]),
            (Some("app:adm"), None, 1000, 4, &[4, 6, 31]),
            (Some("app:55"), Some(&[][..]), 1000, 55, &[]),
            (Some("app"), Some(&["adm", "77"]), 1000, 1001, &[4, 77]),
            (Some("5000:5001"), None, 5000, 5001, &[]),
            (Some("0"), None, 0, 0, &[]),
            (Some("short"), None, 1003, 1004, &[]),
            (None, Some(&["audio"]), 7, 8, &[29]),
        ] {
            let expected = Identity { uid, gid, groups: supplementary.to_vec() };
            assert_eq!(identity(user, groups), Ok(expected), "{user:?} {groups:?}");
        }
    }

    #[test]
    fn g10_who_is_not_there_is_named() {
        for (user, groups, error) in [
            ("ap", None, "/etc/passwd has no user \"ap\""),
            ("#", None, "/etc/passwd has no user \"#\""),
            ("+app", None, "/etc/passwd has no user \"+app\""),
            ("5000", None, "/etc/passwd has no user 5000: name its group as well, as in 5000:GROUP"),
            ("nogid", None, "/etc/passwd has no user 1002: name its group as well, as in 1002:GROUP"),
            ("app:broken", None, "/etc/group has no group \"broken\""),
            ("app", Some(&["adm", "backwards"][..]), "/etc/group has no group \"backwards\""),
        ] {
            assert_eq!(identity(Some(user), groups), Err(error.to_owned()));
        }
    }

    #[test]
    fn g10_numbers_are_those_that_a_process_can_have() {
        assert_eq!(Account::parse("0"), Some(Account::Id(0)));
        assert_eq!(Account::parse("4294967294"), Some(Account::Id(u32::MAX - 1)));
        // (uid_t) -1 would leave the process who it is: root.
        for text in ["", "4294967295", "4294967296"] {
            assert_eq!(Account::parse(text), None, "{text}");
        }
        assert_eq!(Account::parse("-1"), Some(Account::Name("-1".into())));
    }

    #[test]
    fn lines_of_any_length_are_read() {
        let members = "someone,".repeat(100_000);
        let accounts =
            Accounts { passwd: "app:x:1:2::/:".into(), group: format!("big:x:5:{members}app\nnext:x:6:app").into() };
        let user = User { user: Account::Name("app".into()), group: None };
        assert_eq!(accounts.resolve(Some(&user), None, (0, 0)), Ok(Identity { uid: 1, gid: 2, groups: vec![5, 6] }));
        let garbage: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        assert!(Accounts { passwd: garbage.clone(), group: garbage }.resolve(Some(&user), None, (0, 0)).is_err());
    }
}
