//! Full logs that are kept: `F.1`, the latest, to `F.N`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::place::Place;

/// Puts the file `new` at the place of a log, which becomes `F.1`; what was `F.1` becomes `F.2`, and so on, up to
/// `keep` of them.
///
/// Cut short at any step, and tried again or not, no record is lost but with the oldest file, and none is there twice
/// for longer than until [`mend`] is called.
pub(super) fn rotate(place: &Place, keep: NonZeroU32, new: &Path) -> io::Result<()> {
    let (log, first) = (place.path(), backup(place, 1));
    mend(place);
    free_first(place, keep)?;
    // A second name first, so that there is a log at every moment. Where the file system has no such names there is
    // none for the moment between the two renames.
    fs::hard_link(&log, &first).or_else(|_| fs::rename(&log, &first))?;
    fs::rename(new, &log).inspect_err(|_| {
        let _ = fs::rename(&first, &log);
        mend(place);
    })
}

/// Takes back a rotation that was cut short while the log had two names.
pub(super) fn mend(place: &Place) {
    let first = backup(place, 1);
    let identity = |path: &Path| fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let second_name = identity(&first);
    if second_name.is_some() && second_name == identity(&place.path()) {
        // If that fails the next rotation does it.
        let _ = fs::remove_file(&first);
    }
}

/// Makes room for an `F.1`. Only files below the first gap move: one that an attempt cut short has left is filled.
fn free_first(place: &Place, keep: NonZeroU32) -> io::Result<()> {
    let is_free = |number: &u32| fs::symlink_metadata(backup(place, *number)).is_err();
    let gap = (1..keep.get()).find(is_free).unwrap_or(keep.get());
    if gap == keep.get() {
        // Not left to a renaming: the log itself must not take its place, see `rotate`.
        remove_if_there(&backup(place, gap))?;
    }
    for number in (1..gap).rev() {
        fs::rename(backup(place, number), backup(place, number + 1))?;
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn backup(place: &Place, number: u32) -> PathBuf {
    let mut name = OsString::from(place.name());
    name.push(format!(".{number}"));
    place.beside(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::testing::Scratch;
    use super::*;

    /// The directory of a log with backups; a file's text is its age, 0 for the log itself.
    fn logs(ages: &[u32]) -> (Scratch, Place) {
        let dir = Scratch::new();
        for age in ages {
            fs::write(dir.path(name(*age)), age.to_string()).unwrap();
        }
        let place = Place::find(&dir.path("log"), &[]).unwrap();
        (dir, place)
    }

    fn name(number: u32) -> String {
        if number == 0 { "log".to_owned() } else { format!("log.{number}") }
    }

    fn turn(dir: &Scratch, place: &Place, keep: u32) -> io::Result<()> {
        fs::write(dir.path("new"), "new").unwrap();
        rotate(place, NonZeroU32::new(keep).unwrap(), &dir.path("new"))
    }

    /// Names and texts of what is there.
    fn found(dir: &Scratch) -> Vec<(String, String)> {
        let mut found: Vec<_> = fs::read_dir(dir.path(""))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
            .collect();
        found.sort();
        found
    }

    fn expect(dir: &Scratch, expected: &[(u32, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(number, text)| (name(*number), (*text).to_owned())).collect();
        assert_eq!(found(dir), expected);
    }

    #[test]
    fn older_ones_move_up_and_the_oldest_goes() {
        for (before, keep, after) in [
            (&[0][..], 3, &[(0, "new"), (1, "0")][..]),
            (&[0, 1], 3, &[(0, "new"), (1, "0"), (2, "1")]),
            (&[0, 1, 2], 3, &[(0, "new"), (1, "0"), (2, "1"), (3, "2")]),
            (&[0, 1, 2, 3], 3, &[(0, "new"), (1, "0"), (2, "1"), (3, "2")]),
            (&[0, 1], 1, &[(0, "new"), (1, "0")]),
            (&[0, 1, 3], 3, &[(0, "new"), (1, "0"), (2, "1"), (3, "3")]),
            (&[0, 2, 3], 3, &[(0, "new"), (1, "0"), (2, "2"), (3, "3")]),
            (&[0, 1], u32::MAX, &[(0, "new"), (1, "0"), (2, "1")]),
        ] {
            let (dir, place) = logs(before);
            turn(&dir, &place, keep).unwrap();
            expect(&dir, after);
        }
    }

    #[test]
    fn there_is_a_log_at_every_moment() {
        for keep in [1, 2] {
            let (dir, place) = logs(&[0]);
            let log = dir.path("log");
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let watcher = scope.spawn(|| {
                    std::iter::repeat_with(|| log.exists())
                        .take_while(|_| !done.load(Ordering::Relaxed))
                        .all(|there| there)
                });
                (0..500).for_each(|_| turn(&dir, &place, keep).unwrap());
                done.store(true, Ordering::Relaxed);
                assert!(watcher.join().unwrap(), "of {keep} kept");
            });
        }
    }

    #[test]
    fn a_rotation_that_was_cut_short_loses_nothing_and_doubles_nothing() {
        let all = [(0, "new"), (1, "0"), (2, "1"), (3, "2")];
        // While older ones move up.
        let (dir, place) = logs(&[0, 1, 2]);
        fs::rename(dir.path("log.2"), dir.path("log.3")).unwrap();
        turn(&dir, &place, 3).unwrap();
        expect(&dir, &all);
        // When the log has two names.
        let (dir, place) = logs(&[0, 1, 2]);
        fs::rename(dir.path("log.2"), dir.path("log.3")).unwrap();
        fs::rename(dir.path("log.1"), dir.path("log.2")).unwrap();
        fs::hard_link(dir.path("log"), dir.path("log.1")).unwrap();
        mend(&place);
        expect(&dir, &[(0, "0"), (2, "1"), (3, "2")]);
        fs::hard_link(dir.path("log"), dir.path("log.1")).unwrap();
        turn(&dir, &place, 3).unwrap();
        expect(&dir, &all);
    }

    #[test]
    fn a_rotation_that_fails_leaves_the_log_where_it_was() {
        let (dir, place) = logs(&[0, 1]);
        assert!(rotate(&place, NonZeroU32::MIN, &dir.path("missing")).is_err());
        expect(&dir, &[(0, "0")]);
        let (dir, place) = logs(&[0]);
        fs::create_dir(dir.path("log.1")).unwrap();
        assert!(turn(&dir, &place, 1).is_err());
        fs::remove_dir(dir.path("log.1")).unwrap();
        fs::remove_file(dir.path("new")).unwrap();
        expect(&dir, &[(0, "0")]);
    }
}
