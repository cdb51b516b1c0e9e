//! A mountinfo file: every line understood or left out, and what is understood is found again and prints safely.

#![no_main]

use probes::mounts::{Mounts, is_below};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mounts = Mounts::parse(bytes);
    assert!(mounts.iter().count() <= bytes.split(|byte| *byte == b'\n').count());
    for point in mounts.iter() {
        assert!(mounts.get(point.device).is_some());
        assert!(mounts.at(&point.path).is_some_and(|found| found.path == point.path));
        let mount = &point.mount;
        for text in [&mount.mountpoint, &mount.source, &mount.server, &mount.fstype] {
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        assert!(point.remote || mount.server.is_empty());
    }
    for point in mounts.remote_and_below() {
        assert!(mounts.iter().any(|above| above.remote && is_below(&point.path, &above.path)));
    }
});
