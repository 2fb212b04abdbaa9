//! Makes a [`ServiceConfig`] of what the command line said.

use super::given::Given;
use super::validate::{control_socket, detach, directory, invalid, level, logging, name, notify_address, required};
use super::{CliError, ServiceConfig};
use crate::generations::{Layout, Service};

/// Checks `given`, and the files it names.
pub(super) fn validate(given: Given) -> Result<ServiceConfig, CliError> {
    if let Some(option) = given.of_containers {
        return invalid(format!("--{option} is for a container, and with --service there is none. Leave it out"));
    }
    let id = name("--cid", required(given.cid, "Service name not provided. Use --cid")?)?;
    // It becomes a part of texts in JSON, whose strings are Unicode.
    let Some(text) = id.to_str().filter(|text| !text.contains(char::is_control)).map(str::to_owned) else {
        return invalid(format!("--cid “{}” cannot be the name of a service: it must be printable text", id.display()));
    };
    let control = required(given.control_socket, "A service is told what to do over a socket. Use --control-socket")?;
    let persist_dir = required(given.persist_dir, "A service keeps a record of its generations. Use --persist-dir")?;
    let file = required(given.service, "Service file not provided. Use --service")?;
    let level = level(given.log_level.as_deref())?;
    given.timing.validate().or_else(|error| invalid(format!("{error}. Use --stop-budget or --shutdown-timeout")))?;
    let log = logging(given.log, given.name, &id)?;
    if log.passthrough {
        return invalid(
            "--log-path passthrough is for a container: what generations write outlives the caller's stdout",
        );
    }
    let service = Service::read(file.as_ref(), &id).or_else(|error| invalid(error.to_string()))?;
    check_directories(&service.layout)?;
    Ok(ServiceConfig {
        name: text,
        service,
        persist_dir: directory("--persist-dir", persist_dir)?,
        control_socket: control_socket(&control)?,
        log,
        sdnotify_socket: given.sdnotify_socket.map(notify_address).transpose()?,
        detach: detach(given.sync, given.conmon_pid_file)?,
        syslog: given.syslog,
        level,
        timing: given.timing,
    })
}

/// What sockets and links are made in must be there.
fn check_directories(layout: &Layout) -> Result<(), CliError> {
    let Some(places) = layout.places() else { return Ok(()) };
    directory("the service file's run_dir", places.run_dir.clone().into())?;
    if let Some(parent) = places.canonical.parent() {
        directory("the directory of the service file's canonical_socket,", parent.to_owned().into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::{env, fs, process};

    use super::super::{Command, Detach, parse};
    use super::*;

    /// A directory with a service file in it.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let dir = env::temp_dir().join(format!("dunnage-cli-service-{name}-{}", process::id()));
            fs::create_dir(&dir).unwrap();
            let dir_text = dir.display();
            let file = format!(
                r#"{{"layout": "flat", "run_dir": "{dir_text}", "canonical_socket": "{dir_text}/web.sock", "cgroup": "/c"}}"#
            );
            fs::write(dir.join("service.json"), file).unwrap();
            Self(dir)
        }

        /// All that a service needs, `DIR` being the directory, without the option `left_out`.
        fn parse(&self, left_out: &str, more: &str) -> Result<Command, CliError> {
            let dir = self.0.display().to_string();
            let needed = "--cid=web --service=DIR/service.json --control-socket=DIR/control --persist-dir=DIR -l=none";
            let needed = needed.replace("-l=none", "--log-path=none");
            let words = needed.split(' ').filter(|word| left_out.is_empty() || !word.starts_with(left_out));
            let words = words.chain(more.split_ascii_whitespace());
            parse(words.map(|word| OsString::from(word.replace("DIR", &dir))))
        }

        fn config(&self, more: &str) -> ServiceConfig {
            match self.parse("", more) {
                Ok(Command::Serve(config)) => *config,
                other => panic!("{other:?}"),
            }
        }

        fn error(&self, left_out: &str, more: &str) -> String {
            self.parse(left_out, more).unwrap_err().to_string()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_service_needs_its_name_its_file_its_socket_its_directory_and_a_log() {
        let scene = Scene::new("needs");
        let config = scene.config("");
        assert_eq!(config.name, "web");
        assert_eq!(config.control_socket, scene.0.join("control"));
        assert_eq!(config.persist_dir, scene.0);
        assert_eq!(config.service.layout.places().unwrap().canonical, scene.0.join("web.sock"));
        assert!(matches!(config.detach, Detach::Fork { pid_file: None }));
        for option in ["--cid", "--control-socket", "--persist-dir", "--log-path"] {
            let error = scene.error(option, "");
            assert!(error.starts_with("dunnage: error: ") && error.ends_with(&format!("Use {option}")), "{error}");
        }
    }

    #[test]
    fn a_service_may_have_what_concerns_the_shim_itself() {
        let scene = Scene::new("may");
        let config = scene.config(
            "--sync --syslog --log-level debug --name web --shutdown-timeout 30 --sdnotify-socket DIR/notify \
             -l k8s-file:DIR/web.log --log-size-max 1000 --no-sync-log",
        );
        assert!(matches!(config.detach, Detach::Sync) && config.syslog);
        assert_eq!(config.level, log::LevelFilter::Debug);
        assert_eq!(config.sdnotify_socket.unwrap().path().unwrap(), scene.0.join("notify"));
        assert_eq!(config.log.file.unwrap().size_max, Some(1000));
        assert_eq!(config.timing.shutdown_timeout.unwrap().as_secs(), 30);
    }

    #[test]
    fn what_only_a_container_has_is_refused_by_its_name() {
        let scene = Scene::new("container");
        for option in [
            "--cuuid x",
            "--runtime /bin/sh",
            "--bundle /",
            "--container-pidfile x",
            "--terminal",
            "--stdin",
            "--exec",
            "--restore x",
            "--timeout 5",
            "--exit-dir /",
            "--exit-command /bin/true",
            "--exit-delay 1",
            "--full-attach",
            "--api-version",
            "--enable-healthcheck",
        ] {
            let name = option.split(' ').next().unwrap();
            let expected =
                format!("dunnage: error: {name} is for a container, and with --service there is none. Leave it out");
            assert_eq!(scene.error("", option), expected);
        }
        let error = scene.error("", "-l passthrough");
        assert!(error.contains("passthrough is for a container"), "{error}");
    }

    #[test]
    fn a_service_file_that_cannot_be_used_is_named() {
        let scene = Scene::new("file");
        let error = scene.error("--service", "--service /nonexistent/service.json");
        assert!(error.contains("cannot use the service file /nonexistent/service.json: No such file"), "{error}");
        fs::write(
            scene.0.join("service.json"),
            r#"{"layout": "flat", "run_dir": "/nonexistent/run",
            "canonical_socket": "/x", "cgroup": "/c"}"#,
        )
        .unwrap();
        let error = scene.error("", "");
        assert!(error.contains("the service file's run_dir /nonexistent/run is not valid"), "{error}");
    }

    #[test]
    fn a_services_name_is_text_and_names_a_file() {
        let scene = Scene::new("name");
        for name in ["a\u{1}b", "a/b", ".."] {
            let error = scene.error("--cid", &format!("--cid={name}"));
            assert!(error.starts_with("dunnage: error: --cid “"), "{error}");
        }
    }
}
