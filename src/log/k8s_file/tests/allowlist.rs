//! Where the file may be.

use super::*;

#[test]
fn n02_no_file_is_made_or_written_outside_the_allowed_directories() {
    let dir = Scratch::new();
    let allowed = dir.path("allowed");
    fs::create_dir(&allowed).unwrap();
    fs::create_dir(dir.path("outside")).unwrap();
    symlink(dir.path("outside/file"), allowed.join("dangling")).unwrap();
    symlink(dir.path("outside"), allowed.join("dir")).unwrap();
    symlink("real", allowed.join("link")).unwrap();
    let try_open = |path: PathBuf| {
        K8sFile::open(&K8sFileOptions { path, allowlist: vec![allowed.clone()], ..K8sFileOptions::default() })
    };
    for path in ["outside/log", "allowed/../outside/log", "allowed/dangling", "allowed/dir/log", "allowed/../log"] {
        let error = try_open(dir.path(path)).err().unwrap();
        assert!(error.to_string().contains("--log-allowlist-dir"), "{path}: {error}");
    }
    assert_eq!(others(&allowed), [dir.path("outside")]);
    assert_eq!(fs::read_dir(dir.path("outside")).unwrap().count(), 0);
    for path in ["allowed/log", "allowed/link", "outside/../allowed/log"] {
        try_open(dir.path(path)).unwrap().write(Stdout, b"a line\n");
    }
    assert_eq!(Records::of(allowed.join("real")).joined("stdout"), b"a line\n");
    assert_eq!(Records::of(allowed.join("log")).joined("stdout"), b"a line\na line\n");
}

#[test]
fn n02_reopening_and_rotating_hold_to_them_too() {
    let dir = Scratch::new();
    for (name, backups, rename_away) in
        [("a", None, false), ("b", NonZeroU32::new(2), false), ("c", None, true), ("d", NonZeroU32::new(2), true)]
    {
        let (allowed, outside) = (dir.path(name).join("allowed"), dir.path(name).join("outside"));
        fs::create_dir_all(allowed.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        let path = allowed.join("sub/log");
        let mut log = open_with(&path, |options| {
            (options.backups, options.allowlist, options.size_max) = (backups, vec![allowed.clone()], Some(100));
        });
        log.write(Stdout, b"one\n");
        // Somebody puts a link in the directory's place, with the very log behind it or without.
        fs::rename(allowed.join("sub"), allowed.join("old")).unwrap();
        symlink(&outside, allowed.join("sub")).unwrap();
        if !rename_away {
            fs::hard_link(allowed.join("old/log"), outside.join("log")).unwrap();
        }
        let before = fs::read_dir(&outside).unwrap().count();
        log.reopen();
        log.write(Stdout, b"two\nthree\nfour\n");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), before, "{name}");
        assert_eq!(Records::of(allowed.join("old/log")).joined("stdout"), b"one\ntwo\nthree\nfour\n", "{name}");
    }
}

#[test]
fn a_log_in_a_directory_of_others_leads_nowhere_else() {
    let dir = Scratch::new();
    let shared = dir.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    let (log, victim) = (shared.join("log"), dir.path("victim"));
    fs::write(&victim, "secret").unwrap();
    let done = AtomicBool::new(false);
    let mut opened = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = symlink(&victim, &log);
                let _ = fs::remove_file(&log);
                // Time for the other one to find nothing, or its own file.
                thread::yield_now();
            }
        });
        for _ in 0..2000 {
            let Ok(mut file) = K8sFile::open(&K8sFileOptions { path: log.clone(), ..K8sFileOptions::default() }) else {
                continue;
            };
            opened += 1;
            file.write(Stdout, b"output\n");
            file.reopen();
            file.write(Stdout, b"more\n");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(&victim).unwrap(), b"secret");
    assert!(opened > 0, "the attacker was always quicker, so nothing was tried");
}
