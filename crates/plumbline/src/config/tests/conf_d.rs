//! The files of `conf.d`, laid over a configuration.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    super::{Config, ConfigError, check, conf_d::without_configuration, read},
    ms, of_kind,
};
use diagnose::{connection::ConnectionRule, latency::LatencyRule};

const MAIN: &str = "watch_interval_sec: 2\nanomalies:\n  slow: {type: latency, probe: smb, mode: trackonly, \
                    track_commands: [SMB2_READ], only: {mount: /a}}\n  lost: {type: connection}\n";

/// A folder with a configuration, and these files in `conf.d`.
fn folder(main: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("f.yaml"), main).expect("written");
    let conf_d = dir.path().join("conf.d");
    fs::create_dir(&conf_d).expect("made");
    set(&conf_d, 0o755);
    for (name, text) in files {
        fs::write(conf_d.join(name), text).expect("written");
        set(&conf_d.join(name), 0o644);
    }
    dir
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

fn load(dir: &TempDir) -> Result<Config, Vec<ConfigError>> {
    read(Some(&dir.path().join("f.yaml")), &[])
}

fn valid(main: &str, files: &[(&str, &str)]) -> Config {
    load(&folder(main, files)).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn printed(dir: &TempDir) -> Vec<String> {
    let errors = load(dir).expect_err("refused");
    errors.iter().map(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR")).collect()
}

/// What is printed of these files beside a configuration.
fn refused(main: &str, files: &[(&str, &str)]) -> Vec<String> {
    printed(&folder(main, files))
}

fn names(config: &Config) -> Vec<&str> {
    config.rules.iter().map(|configured| configured.rule.name()).collect()
}

#[test]
fn maps_are_merged_and_all_else_is_replaced_in_the_order_of_names() {
    let config = valid(
        MAIN,
        &[
            ("20-later.yaml", "watch_interval_sec: 0.5\nanomalies: {slow: {only: {process: x}, acceptable_count: 4}}"),
            ("10-first.yaml", "watch_interval_sec: 7\nevidence: {concurrency: 3}\naudit: {enabled: true}"),
            (
                "30-rule.yaml",
                "anomalies:\n  slow:\n    track_commands: [SMB2_WRITE]\n  fails: {type: error, probe: smb}",
            ),
        ],
    );
    assert_eq!((config.watch_interval, config.evidence.concurrency, config.audit), (ms(500), 3, true));
    assert_eq!(names(&config), ["slow", "lost", "fails"]);
    let slow: &LatencyRule = of_kind(&config.rules[0]);
    let operations: Vec<_> = slow.thresholds.keys().map(|operation| operation.name()).collect();
    assert_eq!((operations, slow.acceptable_count), (vec!["SMB2_WRITE"], 4));
    assert_eq!(config.rules[0].scope.to_string(), "only mount /a, process x");
    let defaults = Config::compiled_in().expect("valid");
    assert_eq!((config.cooldown, config.evidence.timeout), (defaults.cooldown, defaults.evidence.timeout));
}

#[test]
fn null_removes_a_rule_and_gives_a_key_its_default_back() {
    let config = valid(
        &format!("{MAIN}evidence: {{concurrency: 9}}\n"),
        &[("a.yaml", "anomalies: {slow: ~}\nevidence: {concurrency: ~}")],
    );
    assert_eq!(names(&config), ["lost"]);
    of_kind::<ConnectionRule>(&config.rules[0]);
    assert_eq!(config.evidence, Config::compiled_in().expect("valid").evidence);
    assert_eq!(names(&valid(MAIN, &[("a.yaml", "anomalies: ~")])), [""; 0]);
    let everywhere = valid(MAIN, &[("a.yaml", "anomalies: {slow: {only: null}}")]);
    assert!(everywhere.rules[0].scope.is_everything());
    assert_eq!(
        refused(MAIN, &[("a.yaml", "anomalies:\n  slwo: ~\n  nothing: null")]),
        [
            "DIR/conf.d/a.yaml:2:3: there is no `slwo` to remove; did you mean `slow`?",
            "DIR/conf.d/a.yaml:3:3: there is no `nothing` to remove; remove the line"
        ]
    );
}

#[test]
fn a_rule_is_added_to_the_default_ones() {
    let (config, defaults) = (
        valid("{}", &[("a.yaml", "anomalies: {mine: {type: latency, probe: smb}}")]),
        Config::compiled_in().expect("valid"),
    );
    let mut expected = names(&defaults);
    expected.push("mine");
    assert_eq!(names(&config), expected);
}

#[test]
fn mistakes_are_told_with_the_file_that_has_them() {
    let files = [
        ("10-a.yaml", "evidence:\n  timout_sec: 5\n"),
        ("20-b.yaml", "anomalies:\n  slow:\n    mode: all\n    exclude_commands: [SMB2_READ]\n"),
        ("30-c.yaml", "anomalies:\n  lost: {type: stall}"),
    ];
    assert_eq!(
        refused(&format!("{MAIN}otlp: {{interval_sec: x}}\n"), &files),
        [
            "DIR/f.yaml:5:22: `interval_sec` is `x`; write a number from 1 to 3600 seconds",
            "DIR/conf.d/10-a.yaml:2:3: unknown key `timout_sec`; did you mean `timeout_sec`?",
            "DIR/conf.d/20-b.yaml:4:24: `SMB2_READ` is excluded here but tracked in line 3 of DIR/f.yaml; remove one",
            "DIR/conf.d/30-c.yaml:2:16: there is no type `stall`; did you mean `stalled`?",
        ]
    );
    assert_eq!(
        refused(MAIN, &[("a.yaml", "a: [1"), ("b.yaml", "- 1")])[0],
        "DIR/conf.d/a.yaml:1:4: this is not YAML: unclosed bracket '['; close the bracket"
    );
    assert_eq!(
        refused(MAIN, &[("b.yaml", "- 1")]),
        ["DIR/conf.d/b.yaml:1:1: a configuration is keys with values; write `key: value`, one a line"]
    );
    assert_eq!(refused("# nothing", &[("b.yaml", "audit: {}")]).len(), 1);
    let output = [("o.yaml", "# where\noutput_dir: /dev/null")];
    let dir = folder(MAIN, &output);
    let errors = check(Some(&dir.path().join("f.yaml")), &[]).expect_err("refused");
    assert!(errors[0].to_string().contains("conf.d/o.yaml:2:13: the output directory"), "{errors:?}");
}

#[test]
fn files_of_other_names_are_not_read_and_empty_ones_change_nothing() {
    let files = [("a.yaml", "# later\n"), ("b.yaml~", "!"), (".c.yaml", "!"), ("README", "!"), ("d.yml", "!")];
    let dir = folder(MAIN, &files);
    let config = load(&dir).expect("valid");
    assert_eq!(config.files.len(), 2);
    let shown = dir.path().display();
    assert_eq!(config.files[1], format!("{shown}/conf.d/a.yaml"));
    assert_eq!(config.notices, [format!("{shown}/conf.d/d.yml is not read: end its name in .yaml")]);
    let none = tempfile::tempdir().expect("a directory");
    fs::write(none.path().join("f.yaml"), MAIN).expect("written");
    assert_eq!(load(&none).expect("valid").files.len(), 1);
}

#[test]
fn files_without_a_configuration_are_told() {
    let dir = folder("{}", &[("a.yaml", "{}")]);
    let missing = dir.path().join("missing.yaml");
    let said =
        without_configuration(&missing, &[]).expect("a notice").replace(&dir.path().display().to_string(), "DIR");
    let text = "is not read, since there is no configuration beside the folder; write DIR/missing.yaml with `{}` in it";
    assert_eq!(said, format!("DIR/conf.d/a.yaml {text}, which takes every default"));
    fs::remove_file(dir.path().join("conf.d/a.yaml")).expect("removed");
    assert_eq!(without_configuration(&missing, &[]), None);
}

#[test]
fn the_forms_of_aod_have_no_place_there() {
    let cure = "AOD's configuration is one file, so write it there, or in Plumbline's own form here";
    let files = [
        ("a.yaml", "watcher: {}\nguardian: {anomalies: {}}"),
        ("b.yaml", "anomalies: {smb: {latency: {acceptable_count: 2}}}"),
        ("c.yaml", "anomalies:\n  x: {type: latency, tool: smbslower}"),
    ];
    assert_eq!(
        refused(MAIN, &files),
        [
            format!("DIR/conf.d/a.yaml:1:1: `watcher` is AOD's; {cure}"),
            format!("DIR/conf.d/a.yaml:2:1: `guardian` is AOD's; {cure}"),
            format!("DIR/conf.d/b.yaml:1:19: `latency` of `smb` is AOD's; {cure}"),
            format!("DIR/conf.d/c.yaml:2:22: `tool` of `x` is AOD's; {cure}"),
        ]
    );
    // What AOD's file says is Plumbline's own form by then.
    let aod = "anomalies: {smb: {latency: {tool: smbslower}}}";
    let config = valid(aod, &[("a.yaml", "anomalies: {smb_latency: {acceptable_count: 3}}")]);
    assert_eq!(of_kind::<LatencyRule>(&config.rules[0]).acceptable_count, 3);
    // A rule may have the name of such a group.
    let config =
        valid("anomalies: {smb: {type: latency, probe: smb}}", &[("a.yaml", "anomalies: {smb: {only: {mount: /x}}}")]);
    assert_eq!(config.rules[0].scope.to_string(), "only mount /x");
}

#[test]
fn what_others_can_write_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("SKIP what_others_can_write_is_refused: only root runs the daemon");
    }
    let dir = folder(MAIN, &[("a.yaml", "{}")]);
    let (conf_d, file) = (dir.path().join("conf.d"), dir.path().join("conf.d/a.yaml"));
    set(&file, 0o664);
    let others = "can be written by others";
    let said = |path: &str, mode| format!("{path}: {others} (mode {mode}); run `chmod go-w {path}`, or move it away");
    assert_eq!(printed(&dir), [said("DIR/conf.d/a.yaml", "0664")]);
    set(&file, 0o600);
    set(&conf_d, 0o1777);
    assert_eq!(printed(&dir), [said("DIR/conf.d", "1777")]);
    set(&conf_d, 0o755);
    load(&dir).expect("valid");
    chown(&file, Some(12345), None).expect("given away");
    let text =
        "DIR/conf.d/a.yaml: belongs to user 12345, not to root; run `chown 0 DIR/conf.d/a.yaml`, or move it away";
    assert_eq!(printed(&dir), [text]);
}

#[test]
fn a_folder_or_file_that_cannot_be_read() {
    let dir = folder(MAIN, &[]);
    let conf_d = dir.path().join("conf.d");
    fs::create_dir(conf_d.join("a.yaml")).expect("made");
    assert_eq!(printed(&dir), ["DIR/conf.d/a.yaml: is a directory; name the file in it"]);
    fs::remove_dir(conf_d.join("a.yaml")).expect("removed");
    symlink("missing", conf_d.join("a.yaml")).expect("made");
    assert!(printed(&dir)[0].starts_with("DIR/conf.d/a.yaml: cannot be read: No such file"));
    fs::remove_file(conf_d.join("a.yaml")).expect("removed");
    fs::write(conf_d.join("a.yaml"), b"audit: {}\n# \xff").expect("written");
    assert_eq!(printed(&dir), ["DIR/conf.d/a.yaml:2:3: this byte is not UTF-8; save the file as UTF-8"]);
    fs::remove_dir_all(&conf_d).expect("removed");
    fs::write(&conf_d, "").expect("written");
    assert_eq!(printed(&dir), ["DIR/conf.d: is not a directory; move it away: it is for files of configuration"]);
    let many: Vec<_> = (0..101).map(|number| format!("{number}.yaml")).collect();
    let files: Vec<_> = many.iter().map(|name| (name.as_str(), "{}")).collect();
    let said = refused(MAIN, &files);
    assert_eq!(said, ["DIR/conf.d: has more than 100 files; put what belongs together into one"]);
}

#[test]
fn nothing_there_is_read_from_a_watched_mount() {
    let dir = folder(MAIN, &[]);
    let mount = dir.path().join("mnt");
    symlink(mount.join("x.yaml"), dir.path().join("conf.d/a.yaml")).expect("made");
    let never_touch: [PathBuf; 1] = [mount];
    let errors = read(Some(&dir.path().join("f.yaml")), &never_touch).expect_err("refused");
    assert!(errors[0].to_string().contains("conf.d/a.yaml: is on "), "{errors:?}");
    let conf_d = dir.path().join("conf.d");
    let errors = read(Some(&dir.path().join("f.yaml")), &[conf_d]).expect_err("refused");
    assert!(errors[0].to_string().contains("conf.d: is on "), "{errors:?}");
}
