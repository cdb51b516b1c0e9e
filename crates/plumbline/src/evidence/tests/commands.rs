//! Commands and their limits.

use super::*;

/// Runs one action under these settings and says what the manifest and the file have.
fn outcome(settings: impl FnOnce(Settings) -> Settings, action: ActionSpec) -> (serde_json::Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(settings(super::settings(dir.path()))).unwrap();
    let name = action.name.clone();
    let done = one(&collector, request(&id(1), vec![], vec![action]));
    let record = record(written(&done), &name);
    let file = record["file"].as_str().map(|file| unpack(written(&done))[file].clone());
    (record, String::from_utf8(file.unwrap_or_default()).unwrap())
}

/// Whether any process has this in its arguments.
pub fn runs(marker: &str) -> bool {
    let arguments = |pid: &fs::DirEntry| fs::read(pid.path().join("cmdline")).unwrap_or_default();
    let own = std::process::id().to_string();
    fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        entry.file_name().to_string_lossy() != own.as_str()
            && arguments(&entry).windows(marker.len()).any(|part| part == marker.as_bytes())
    })
}

#[test]
fn a_command_has_both_outputs_and_no_shell() {
    let (record, text) = outcome(|s| s, shell("mine", "echo out; echo err >&2; echo '$HOME'"));
    assert_eq!(text, "out\nerr\n$HOME\n");
    assert_eq!((&record["status"], &record["bytes"]), (&"ok".into(), &14.into()));
    assert_eq!(record["command"], r"sh -c 'echo out; echo err >&2; echo '\''$HOME'\'''");
    assert_eq!(outcome(|s| s, action("mine", &["echo", "$HOME;", "`id`"])).1, "$HOME; `id`\n");
}

#[test]
fn a_command_does_not_inherit_the_signals_that_the_daemon_blocks() {
    nix::sys::signal::SigSet::all().thread_block().unwrap();
    let (_, text) = outcome(|s| s, action("mine", &["grep", "SigBlk", "/proc/self/status"]));
    assert_eq!(text, "SigBlk:\t0000000000000000\n");
}

#[test]
fn programs_are_looked_for_on_the_system_alone_and_from_the_root() {
    let seen = outcome(|s| s, shell("mine", "pwd; echo $PATH; echo ${LD_LIBRARY_PATH-none} ${LD_PRELOAD-none}")).1;
    assert_eq!(seen, "/\n/usr/sbin:/usr/bin:/sbin:/bin\nnone none\n");
}

#[test]
fn a_command_that_fails_is_recorded_with_its_output() {
    let (record, text) = outcome(|s| s, shell("mine", "echo so far; exit 3"));
    assert_eq!(text, "so far\n");
    assert_eq!((&record["status"], &record["exit_code"]), (&"failed".into(), &3.into()));
    let (record, _) = outcome(|s| s, shell("mine", "kill -SEGV $$"));
    assert_eq!((&record["status"], &record["exit_code"]), (&"failed".into(), &139.into()));
}

#[test]
fn a_missing_program_is_recorded() {
    for (name, argv) in [("mine", &["/nowhere/at all"][..]), ("empty", &[])] {
        let (record, text) = outcome(|s| s, action(name, argv));
        assert_eq!((&record["status"], text.as_str()), (&"failed".into(), ""), "{record}");
    }
}

#[test]
fn a_time_out_kills_the_whole_process_group() {
    let marker = format!("{}.61", std::process::id());
    let script = format!("echo begun; sleep {marker} & (sleep {marker} & sleep {marker})");
    let (record, text) = outcome(|s| Settings { time_limit: Duration::from_secs(2), ..s }, shell("mine", &script));
    assert_eq!(text, "begun\n");
    assert_eq!((&record["status"], &record["truncated"]), (&"timeout".into(), &false.into()), "{record}");
    wait_until("no process of it is left", || !runs(&marker));
}

#[test]
fn what_a_command_leaves_running_is_killed_and_not_waited_for() {
    let marker = format!("{}.62", std::process::id());
    let (record, text) = outcome(|s| s, shell("mine", &format!("sleep {marker} & echo done")));
    assert_eq!((&record["status"], text.as_str()), (&"ok".into(), "done\n"));
    wait_until("no process of it is left", || !runs(&marker));
    // Even if it never stops talking.
    let (record, _) = outcome(|s| s, shell("mine", "while :; do echo more; sleep 0.01; done & sleep 0.1"));
    assert_eq!(record["status"], "ok", "{record}");
}

#[test]
fn endless_output_is_cut_at_the_cap_and_its_writer_killed() {
    let marker = format!("y{}", std::process::id());
    let (record, text) = outcome(|s| Settings { output_cap: 100_000, ..s }, action("mine", &["yes", &marker]));
    assert_eq!(text.len(), 100_000);
    assert_eq!((&record["status"], &record["truncated"]), (&"truncated".into(), &true.into()), "{record}");
    wait_until("no process of it is left", || !runs(&marker));
}

#[test]
fn no_more_actions_run_at_once_than_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { concurrency: 2, ..settings(dir.path()) }).unwrap();
    let marks = dir.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let script = format!("touch {0}/$$; ls {0} | wc -l; sleep 0.2; rm {0}/$$", marks.display());
    let actions = (0..6).map(|n| shell(&format!("n{n}"), &script)).collect();
    let done = one(&collector, request(&id(1), vec![], actions));
    let parts = unpack(written(&done));
    let at_once = parts.iter().filter(|(name, _)| name.ends_with(".txt"));
    let at_once: Vec<u32> = at_once.map(|(_, text)| String::from_utf8_lossy(text).trim().parse().unwrap()).collect();
    assert_eq!((at_once.len(), at_once.iter().max()), (6, Some(&2)), "{at_once:?}");
}

#[test]
fn a_program_with_input_may_ignore_it_fail_or_never_end() {
    let words = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let limit = Duration::from_secs(60);
    let large = vec![b'x'; 1 << 20];
    let script = r#"[ "$(wc -c)" -eq 1048576 ]"#;
    assert!(run_with_input(&words(script), &large, limit).is_ok());
    assert!(run_with_input(&words("yes | head -c 1000000"), &large, limit).is_ok(), "what it writes is thrown away");
    let error = run_with_input(&words("exit 3"), b"", limit).unwrap_err();
    assert_eq!(error.to_string(), "/bin/sh: exit status: 3");
    let error = run_with_input(&["/no/such".to_owned()], b"", limit).unwrap_err();
    assert_eq!(error.to_string(), "cannot run /no/such; is it installed?");
    let marker = format!("{}.63", std::process::id());
    let never = words(&format!("sleep {marker} & sleep {marker}"));
    let error = run_with_input(&never, b"", Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.to_string(), "/bin/sh did not end within 0.2 s: it is killed, and what it has started");
    wait_until("no process of it is left", || !runs(&marker));
}
