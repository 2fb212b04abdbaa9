//! The manual page and the completions, made from the command line's definition. They are checked in; this holds them
//! against it, and `UPDATE_PAGES=1 cargo test --bin dunnagectl pages` writes them anew.

use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::definition;

fn check(path: &str, wanted: &[u8]) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let found = fs::read(&path).unwrap_or_default();
    if found != wanted && env::var_os("UPDATE_PAGES").is_some() {
        return fs::write(&path, wanted).unwrap();
    }
    let path = path.display();
    assert!(found == wanted, "{path} is behind the definition: UPDATE_PAGES=1 cargo test --bin dunnagectl pages");
}

#[test]
fn the_completions_are_made_from_the_definition() {
    for (shell, name) in
        [(Shell::Bash, "dunnagectl.bash"), (Shell::Zsh, "_dunnagectl"), (Shell::Fish, "dunnagectl.fish")]
    {
        let mut script = Vec::new();
        generate(shell, &mut definition::command(), "dunnagectl", &mut script);
        check(&format!("docs/completions/{name}"), &script);
    }
}

#[test]
fn the_manual_page_is_made_from_the_definition() {
    check("docs/man/dunnagectl.1", manual().as_bytes());
}

#[test]
fn the_definition_is_sound() {
    definition::command().debug_assert();
}

/// One page: the program, then each command with its options.
fn manual() -> String {
    let mut command = definition::command();
    command.build();
    let page = Man::new(command.clone()).date("").source("dunnage").manual("dunnage");
    let mut text = section(|to| page.render_title(to));
    text += &section(|to| page.render_name_section(to));
    text += &section(|to| page.render_synopsis_section(to));
    text += &section(|to| page.render_description_section(to));
    text += &section(|to| page.render_options_section(to));
    text += ".SH COMMANDS\n";
    for subcommand in command.get_subcommands() {
        text += &subsection(subcommand);
    }
    text + END
}

/// What the definition does not say.
const END: &str = "\
.SH EXIT STATUS
.TP
0
Done.
.TP
125
dunnagectl itself failed; one line on stderr says why, and what to do.
.TP
others
Of \\fBexec\\fR and \\fBattach\\fR, how the process ended: its status, 128 and the number of the signal that ended it,
124 if its \\fB\\-\\-timeout\\fR was over. 128 and a signal\\(aqs number, too, where that signal ended dunnagectl alone.
.SH ENVIRONMENT
.TP
DUNNAGE_CONTROL_DIR
The directory of the control sockets, in place of \\fI/run/dunnage\\fR.
.TP
NO_COLOR
If it is set there are no colours. There are none either where stdout is no terminal.
.TP
COLUMNS
How wide tables may be, in place of the terminal\\(aqs width.
.SH FILES
.TP
\\fI/run/dunnage/ID\\fR
The control socket of the container \\fIID\\fR. Monitors make it, and the directory, when they are started with
DUNNAGE_CONTROL_DIR=/run/dunnage. Podman passes it on if \\fBcontainers.conf\\fR says so, and CRI\\-O by \\fBmonitor_env\\fR:
.PP
.nf
    [engine]
    conmon_env_vars = [\"PATH=/usr/sbin:/usr/bin:/sbin:/bin\", \"DUNNAGE_CONTROL_DIR=/run/dunnage\"]
.fi
.SH EXAMPLES
.nf
dunnagectl ps
dunnagectl exec \\-it 3f2a sh
dunnagectl exec \\-\\-timeout 5s web \\-\\- wget \\-q \\-O /dev/null http://localhost/
dunnagectl logs \\-f \\-\\-tail 20 web
dunnagectl events \\-\\-json
dunnagectl shutdown \\-\\-timeout 30s web
dunnagectl stage \\-\\-until\\-ready 30s web 8 /srv/web/builds/v43 && dunnagectl switch web 8
dunnagectl kill web 7
.fi
.SH SEE ALSO
.BR dunnage (8),
.BR podman (1),
.BR varlinkctl (1)
";

fn section(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// What a page of its own would have, below one heading.
fn subsection(command: &Command) -> String {
    // The options that every command has are told once.
    let mut own = command.clone();
    for global in ["dir", "socket", "help"] {
        if own.get_arguments().any(|argument| argument.get_id() == global) {
            own = own.mut_arg(global, |argument| argument.hide(true));
        }
    }
    let page = Man::new(own.disable_help_flag(true));
    let parts = [
        section(|to| page.render_synopsis_section(to)),
        section(|to| page.render_description_section(to)),
        section(|to| page.render_options_section(to)),
    ];
    let is_heading = |line: &&str| line.starts_with(".SH") || line.starts_with(".ie") || line.starts_with(".el");
    let body = parts.map(|part| part.lines().filter(|line| !is_heading(line)).collect::<Vec<_>>().join("\n"));
    format!(".SS {}\n{}\n", command.get_name(), body.join("\n.PP\n"))
}
