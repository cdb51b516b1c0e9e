//! Files that cannot be configurations, and directories that incidents cannot go to.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use tempfile::TempDir;

use super::super::*;

fn printed(errors: &[ConfigError], dir: &TempDir) -> Vec<String> {
    errors.iter().map(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR")).collect()
}

/// What is printed of a file with this content.
fn file(content: &[u8]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f.yaml");
    fs::write(&path, content).expect("written");
    printed(&read(Some(&path), &[]).expect_err("refused"), &dir)
}

#[test]
fn a_file_that_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let load = |name: &str| printed(&read(Some(&dir.path().join(name)), &[]).expect_err("refused"), &dir);
    let missing = "No such file or directory (os error 2); check the path and its permissions";
    assert_eq!(load("missing.yaml"), [format!("DIR/missing.yaml: cannot be read: {missing}")]);
    assert_eq!(load(""), ["DIR/: is a directory; name the file in it"]);
    let device = read(Some(Path::new("/dev/null")), &[]).expect_err("refused");
    assert_eq!(device[0].to_string(), "/dev/null: is not a regular file; name a file");
}

#[test]
fn bytes_that_are_no_text() {
    let utf8 = "this byte is not UTF-8; save the file as UTF-8";
    assert_eq!(file(b"a: 1\nb: \xc3\xbc\xff"), [format!("DIR/f.yaml:2:5: {utf8}")]);
    assert_eq!(file(b"\xff\xfea\0"), [format!("DIR/f.yaml:1:1: {utf8}")]);
    let large = "is larger than 1024 KiB; no configuration is, so name the right file";
    assert_eq!(file(&vec![b'#'; (1 << 20) + 1]), [format!("DIR/f.yaml: {large}")]);
    let mut largest = vec![b'#'; 1 << 20];
    largest[(1 << 20) - 3..].copy_from_slice(b"\n{}");
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("f"), largest).expect("written");
    read(Some(&dir.path().join("f")), &[]).expect("just small enough");
}

#[test]
fn a_hostile_file_name_is_spelled_out() {
    let error = read(Some(Path::new("/nowhere/\u{1b}[31m\n.yaml")), &[]).expect_err("missing");
    assert!(error[0].to_string().starts_with("/nowhere/\\x1b[31m\\x0a.yaml: cannot be read"), "{}", error[0]);
}

/// What is said of a path below a fresh directory in which `make` has made something.
fn output_dir(name: &str, never_touch: &[&str], make: impl FnOnce(&Path)) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    make(dir.path());
    let never_touch: Vec<_> = never_touch.iter().map(|mount| dir.path().join(mount)).collect();
    let shown = dir.path().display().to_string();
    check_output_dir(&dir.path().join(name), &never_touch).map(drop).map_err(|text| text.replace(&shown, "DIR"))
}

/// The daemon is, and judges as root.
fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIP {test}: what root makes is root's");
    }
    root
}

fn directory(path: &Path, mode: u32) {
    fs::create_dir(path).expect("made");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn a_directory_of_roots_is_fine_and_so_is_one_that_can_be_made() {
    if !is_root("a_directory_of_roots_is_fine_and_so_is_one_that_can_be_made") {
        return;
    }
    assert_eq!(output_dir("out", &[], |dir| directory(&dir.join("out"), 0o700)), Ok(()));
    assert_eq!(output_dir("out", &[], |dir| directory(&dir.join("out"), 0o755)), Ok(()));
    assert_eq!(output_dir("out", &[], |_| ()), Ok(()));
    assert_eq!(output_dir("a/b/out", &[], |_| ()), Ok(()));
    assert_eq!(output_dir("link/out", &[], |dir| symlink(".", dir.join("link")).expect("made")), Ok(()));
}

#[test]
fn a_directory_that_is_none_or_not_only_ours() {
    if !is_root("a_directory_that_is_none_or_not_only_ours") {
        return;
    }
    let error = |text: &str| Err(format!("the output directory DIR/{text}"));
    let write = |path: PathBuf| fs::write(path, "").expect("written");
    assert_eq!(
        output_dir("out", &[], |dir| write(dir.join("out"))),
        error("out is not a directory; move it away, or choose another")
    );
    assert_eq!(
        output_dir("file/out", &[], |dir| write(dir.join("file"))),
        error("file/out cannot exist: DIR/file is not a directory; choose another path")
    );
    assert_eq!(
        output_dir("out", &[], |dir| symlink("/tmp", dir.join("out")).expect("made")),
        error("out is a symbolic link; name the directory itself")
    );
    assert_eq!(
        output_dir("a/out", &[], |dir| symlink("a", dir.join("a")).expect("made")),
        error("a/out is a loop of symbolic links; name the directory itself")
    );
    assert_eq!(
        output_dir("out", &[], |dir| directory(&dir.join("out"), 0o770)),
        error("out can be written by others (mode 0770); run `chmod 700 DIR/out`")
    );
    let relative = check_output_dir(Path::new("out"), &[]);
    assert_eq!(relative, Err("the output directory out is not absolute; begin it with `/`".to_owned()));
}

#[test]
fn a_directory_of_somebody_else() {
    if !is_root("a_directory_of_somebody_else") {
        return;
    }
    let given_away = output_dir("out", &[], |dir| {
        directory(&dir.join("out"), 0o700);
        nix::unistd::chown(&dir.join("out"), Some(12345.into()), None).expect("given away");
    });
    let text = "the output directory DIR/out belongs to user 12345, not to root, who runs the daemon; run `chown 0 DIR/out`, or choose another";
    assert_eq!(given_away, Err(text.to_owned()));
}

#[test]
fn a_directory_on_a_watched_mount_is_refused_by_its_name_also_through_a_link() {
    let text = "is on DIR/mnt, a watched mount; choose a path on a local file system, so that a server that hangs cannot block Plumbline";
    let error = |name: &str| Err(format!("the output directory DIR/{name} {text}"));
    // Nothing is there to be looked at: the name alone decides.
    assert_eq!(output_dir("mnt/a/out", &["mnt"], |_| ()), error("mnt/a/out"));
    assert_eq!(output_dir("mnt", &["mnt"], |_| ()), error("mnt"));
    assert_eq!(
        output_dir("log/out", &["mnt"], |dir| symlink("mnt/x", dir.join("log")).expect("made")),
        error("log/out")
    );
    assert_eq!(output_dir("mnt2/out", &["mnt"], |_| ()), Ok(()));
}

#[test]
fn the_folder_for_incidents_is_judged_as_the_output_directory_is() {
    if !is_root("the_folder_for_incidents_is_judged_as_the_output_directory_is") {
        return;
    }
    let output = |dir: &Path| directory(&dir.join("out"), 0o700);
    let said = |never_touch: &[&str], make: &dyn Fn(&Path)| {
        output_dir("out", never_touch, |dir| {
            output(dir);
            make(&dir.join("out/incidents"));
        })
    };
    let error = |text: &str| Err(format!("the directory of incidents DIR/out/incidents {text}"));
    assert_eq!(said(&[], &|_| ()), Ok(()));
    assert_eq!(said(&[], &|incidents| directory(incidents, 0o700)), Ok(()));
    assert_eq!(
        said(&["out/incidents"], &|_| ()),
        error(
            "is on DIR/out/incidents, a watched mount; choose a path on a local file system, so that a server that hangs cannot block Plumbline"
        )
    );
    assert_eq!(
        said(&[], &|incidents| symlink("/tmp", incidents).expect("made")),
        error("is a symbolic link; name the directory itself")
    );
    let given_away = |incidents: &Path| {
        directory(incidents, 0o700);
        nix::unistd::chown(incidents, Some(12345.into()), None).expect("given away");
    };
    assert_eq!(
        said(&[], &given_away),
        error(
            "belongs to user 12345, not to root, who runs the daemon; run `chown 0 DIR/out/incidents`, or choose another"
        )
    );
}

#[test]
fn a_configuration_on_a_watched_mount_is_refused_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    // It would be read otherwise.
    let path = dir.path().join("f.yaml");
    fs::write(&path, "{}").expect("written");
    let errors = check(Some(&path), &[dir.path().to_owned()]).expect_err("refused");
    let text = "is on DIR, a watched mount; choose a path on a local file system, so that a server that hangs cannot block Plumbline";
    assert_eq!(printed(&errors, &dir), [format!("DIR/f.yaml: {text}")]);
}

#[test]
fn check_gives_the_place_of_the_output_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, taken) = (dir.path().join("f.yaml"), dir.path().join("taken"));
    fs::write(&taken, "").expect("written");
    fs::write(&path, format!("audit: {{}}\noutput_dir: {}\n", taken.display())).expect("written");
    let errors = check(Some(&path), &[]).expect_err("refused");
    let text = "the output directory DIR/taken is not a directory; move it away, or choose another";
    assert_eq!(printed(&errors, &dir), [format!("DIR/f.yaml:2:13: {text}")]);
    fs::remove_file(&taken).expect("removed");
    assert_eq!(check(Some(&path), &[]).expect("can be made").output_dir, taken);
}
