# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dunnagectl_global_optspecs
    string join \n dir= socket= h/help V/version
end

function __fish_dunnagectl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dunnagectl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dunnagectl_using_subcommand
    set -l cmd (__fish_dunnagectl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -s V -l version -d 'Print version'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "ps" -d 'List the containers and services that have a control socket'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "status" -d 'Show what a monitor knows: processes, runtimes that run, generations, counters'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "exec" -d 'Run a command in a container, and end with its exit status'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "attach" -d 'Attach to a container\'s streams, and end with its exit status'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "logs" -d 'Show what a container has written: its stdout on stdout, its stderr on stderr'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "events" -d 'Show what happens from now on, until the container\'s end'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "signal" -d 'Send a signal to the container\'s process, or to one executed in it'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "resize" -d 'Set the size of a container\'s terminal'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "close-stdin" -d 'Close the stdin of a container\'s process, once what clients have sent is through'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "reopen-logs" -d 'Make new files at the paths of a container\'s logs, after they were moved away'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "shutdown" -d 'End a container within a time: SIGTERM now, SIGKILL when it must be'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "stage" -d 'Start a generation of a service from its staged build, beside the others'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "start" -d 'Start a generation of a service through the live link: a cold start'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "start-worker" -d 'Start the worker of a service, from a staged build or through the live link'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "gate" -d 'Answer a gate: whether a start that asks may go on'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "layout" -d 'Show how the generations of a service run, and why'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "paths" -d 'Show the sockets that a generation has, or would have'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "raise" -d 'Give a service\'s cgroup room for two: the limits of both together'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "ready" -d 'Open a generation\'s socket to its group (0660)'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "switch" -d 'Have clients reach another generation: the canonical socket leads to it from now on'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "kill" -d 'Kill all of a generation, of the worker or of the sidecar, and prove that nothing is left'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "empty" -d 'Prove that nothing is left of a generation or the worker, and kill it only if something is'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "restore" -d 'Give a service\'s cgroup the limits of one generation again'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "sidecar" -d 'Start the sidecar from a generation\'s own build; it is started again when it ends'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "move" -d 'Move a generation with all its processes into another cgroup, which is made for it'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "hold" -d 'Keep a build from cold starts, also after a restart of the monitor'
complete -c dunnagectl -n "__fish_dunnagectl_needs_command" -f -a "release" -d 'Let a build that is held start again'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -l no-trunc -d 'Show ids and commands as long as they are'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -s q -l quiet -d 'Show the ids alone'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ps" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand status" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand status" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand status" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand status" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s e -l env -d 'Set a variable, or pass on our own of that name; repeatable' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s w -l cwd -d 'Where in the container the command starts' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s u -l user -d 'Whom it runs as, by numbers (GID is 0 unless given); another than 0 has no capabilities' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -l timeout -d 'Kill it with all that it started after this time: 500ms, 10s, 2m, or seconds' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -l detach-keys -d 'Keys that leave a process with a terminal, which goes on; none if empty' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s i -l interactive -d 'Pass on stdin (otherwise it is /dev/null)'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s t -l tty -d 'Give the command a terminal'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand attach" -l detach-keys -d 'Keys that leave a process with a terminal, which goes on; none if empty' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand attach" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand attach" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand attach" -l no-stdin -d 'Only look: pass on no input, and leave the container\'s stdin as it is'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -s n -l tail -d 'Begin with the last N lines' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -s f -l follow -d 'Go on with what it writes, until it ends'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -s t -l timestamps -d 'Begin each line with the time when it was written'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -l json -d 'Print each record as a JSON object, a line each'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand events" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand events" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand events" -l json -d 'Print each event as a JSON object with the container\'s id, a line each'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -s s -l signal -d 'As a word or number: TERM, SIGTERM or 15' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -l target -d 'container, or the id of a process executed in it, such as exec-3: status lists them' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -s a -l all -d 'To all processes of the target; each gets it once, whatever it forks meanwhile'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand signal" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l height -d 'Rows, 0 to 1000 [default: those of this terminal]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l width -d 'Columns, 0 to 1000 [default: those of this terminal]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l target -d 'container, or the id of a process executed in it, such as exec-3: status lists them' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand resize" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand close-stdin" -l target -d 'container, or the id of a process executed in it, such as exec-3: status lists them' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand close-stdin" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand close-stdin" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand close-stdin" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand close-stdin" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand reopen-logs" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand reopen-logs" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand reopen-logs" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand reopen-logs" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand shutdown" -l timeout -d 'All must be over by then: 500ms, 10s, 2m, or seconds; above the monitor\'s --stop-budget (2 s)' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand shutdown" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand shutdown" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand shutdown" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand shutdown" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l build -d 'What the build is called [default: the last component of what is executed]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l digest -d 'What is executed must have this digest; for a bundle, its config.json' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l tier -d 'Its limits: memory_max=512M,memory_high=N,cpu_max=QUOTA PERIOD,cpu_weight=N,pids_max=N, each as the kernel takes it; what is left out is no limit; none: no limits [default: the build\'s own, else the service\'s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l gate-command -d 'Have a shell command answer the gate: status 0 proceeds, otherwise its stderr is why not. It gets DUNNAGE_GATE_POINT (prepared, recorded), DUNNAGE_GATE_BUILD and DUNNAGE_GATE_TOKEN' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l gate-timeout -d 'How long an answer may take, after which the gate is shut [default: 10s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l until-ready -d 'Wait until it says READY=1 (sd_notify); fail if it ends before, or has not in this time' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l gate -d 'Be asked before the start, once prepared and once recorded: dunnagectl gate answers, in time'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand stage" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l digest -d 'What is executed must have this digest; for a bundle, its config.json' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l tier -d 'Its limits: memory_max=512M,memory_high=N,cpu_max=QUOTA PERIOD,cpu_weight=N,pids_max=N, each as the kernel takes it; what is left out is no limit; none: no limits [default: the build\'s own, else the service\'s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l gate-command -d 'Have a shell command answer the gate: status 0 proceeds, otherwise its stderr is why not. It gets DUNNAGE_GATE_POINT (prepared, recorded), DUNNAGE_GATE_BUILD and DUNNAGE_GATE_TOKEN' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l gate-timeout -d 'How long an answer may take, after which the gate is shut [default: 10s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l until-ready -d 'Wait until it says READY=1 (sd_notify); fail if it ends before, or has not in this time' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l build -d 'What the live link must lead to, by its last component' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l gate -d 'Be asked before the start, once prepared and once recorded: dunnagectl gate answers, in time'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l build -d 'What the build is called [default: the last component of what is executed]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l digest -d 'What is executed must have this digest; for a bundle, its config.json' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l tier -d 'Its limits: memory_max=512M,memory_high=N,cpu_max=QUOTA PERIOD,cpu_weight=N,pids_max=N, each as the kernel takes it; what is left out is no limit; none: no limits [default: the build\'s own, else the service\'s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l gate-command -d 'Have a shell command answer the gate: status 0 proceeds, otherwise its stderr is why not. It gets DUNNAGE_GATE_POINT (prepared, recorded), DUNNAGE_GATE_BUILD and DUNNAGE_GATE_TOKEN' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l gate-timeout -d 'How long an answer may take, after which the gate is shut [default: 10s]' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l replace -d 'Stop the one that runs first, once the gate is open'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l gate -d 'Be asked before the start, once prepared and once recorded: dunnagectl gate answers, in time'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand start-worker" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -l refuse -d 'It may not, and its caller is told why' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -l proceed -d 'It may'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand gate" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand layout" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand layout" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand layout" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand layout" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand paths" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand paths" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand paths" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand paths" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand raise" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand raise" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand raise" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand raise" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ready" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ready" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ready" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand ready" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand switch" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand switch" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand switch" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand switch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand kill" -l timeout -d 'Nothing must be left by then: 500ms, 10s, 2m, or seconds' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand kill" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand kill" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand kill" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand empty" -l timeout -d 'Nothing must be left by then: 500ms, 10s, 2m, or seconds' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand empty" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand empty" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand empty" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand empty" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand restore" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand restore" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand restore" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand restore" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand sidecar" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand sidecar" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand sidecar" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand sidecar" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand move" -l timeout -d 'All must be there by then: 500ms, 10s, 2m, or seconds' -r
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand move" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand move" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand move" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand move" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand hold" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand hold" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand hold" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand hold" -s h -l help -d 'Print help'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand release" -l dir -d 'Where the control sockets are, each named by its container\'s id' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand release" -l socket -d 'The control socket of the container that is meant, in place of its ID' -r -F
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand release" -l json -d 'Print what the monitor answers, as JSON: one object a line'
complete -c dunnagectl -n "__fish_dunnagectl_using_subcommand release" -s h -l help -d 'Print help'
