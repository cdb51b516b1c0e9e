//! What holds for any text.

use proptest::prelude::*;

use super::*;

/// Text out of the words of a configuration, which gets further than random characters do.
fn plausible() -> impl Strategy<Value = String> {
    let words = [
        "watch_interval_sec",
        "output_dir",
        "anomalies",
        "guardian",
        "smb",
        "latency",
        "type",
        "probe",
        "tool",
        "mode",
        "smbslower",
        "trackonly",
        "track_commands",
        "only",
        "except",
        "mount",
        "user",
        "command",
        "SMB2_WRITE",
        "threshold",
        "actions",
        "dmesg",
        "evidence",
        "custom_actions",
        "probes",
        "cleanup",
        "true",
        "1",
        "-1",
        "1e300",
        ".nan",
        "~",
        "/var/log/x",
        "'",
        "\"",
        "&a",
        "*a",
        "!t",
        "<<",
        "#",
        "-",
        "?",
        "|",
        ">",
        "%",
        "@",
        "\t",
        ": ",
        ", ",
        "{",
        "}",
        "[",
        "]",
        "\n",
        "\n  ",
        "\n    ",
        "---\n",
        "\u{202e}",
        "\0",
        "ü",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
}

/// No panic, and of an error one printable line at a place that exists.
fn assert_sane(text: &str) {
    for error in parse(text).err().unwrap_or_default() {
        let line = error.to_string();
        assert!(!line.chars().any(char::is_control), "{line:?}");
        let at = error.at.expect("a place");
        let lines = text.split(['\n', '\r']).count();
        assert!((1..=lines).contains(&at.line) && at.column >= 1, "{line}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_at_a_place(text: String) {
        assert_sane(&text);
    }

    #[test]
    fn any_plausible_text_is_read_or_refused_at_a_place(text in plausible()) {
        assert_sane(&text);
    }

    #[test]
    fn the_compiled_in_configuration_with_a_piece_cut_out_is_read_or_refused(from in 0..6000_usize, length in 0..40_usize) {
        let text: String = super::super::COMPILED_IN.char_indices().filter(|(at, _)| !(from..from + length).contains(at)).map(|(_, c)| c).collect();
        assert_sane(&text);
    }

    #[test]
    fn what_is_written_within_its_range_is_what_is_read(
        interval_ms in 10_u64..86_400_000,
        count in 1_u32..=1_000_000,
        default in 0_u64..86_400_000,
        own in 0_u64..86_400_000,
        kb in 1_u32..=65_536,
        concurrency in 1_usize..=16,
    ) {
        let interval = interval_ms as f64 / 1e3;
        let config = valid(&format!(
            "watch_interval_sec: {interval}\nevidence: {{max_kb: {kb}, concurrency: {concurrency}}}\nanomalies:\n  \
             r: {{type: latency, probe: smb, acceptable_count: {count}, default_threshold_ms: {default}, \
             track_commands: [{{command: SMB2_WRITE, threshold: {own}}}]}}\n"
        ));
        prop_assert_eq!(config.watch_interval, ms(interval_ms));
        prop_assert_eq!((config.evidence.max_bytes, config.evidence.concurrency), (u64::from(kb) * 1024, concurrency));
        prop_assert_eq!(super::latency(&config, "r").acceptable_count, count);
        let thresholds = thresholds(&config, "r");
        prop_assert_eq!((thresholds["SMB2_READ"], thresholds["SMB2_WRITE"]), (u128::from(default), u128::from(own)));
    }

    #[test]
    fn a_key_with_a_slip_is_known_again(at in 0..11_usize, slip in 0..6_usize) {
        let keys = ["watch_interval_sec", "output_dir", "probes", "all_filesystems", "anomalies", "cooldown_sec",
            "snapshot", "custom_actions", "evidence", "cleanup", "audit"];
        let right = keys[at];
        let wrong: String = right.char_indices().filter(|(index, _)| *index != slip % right.len()).map(|(_, c)| c).collect();
        let errors = parse(&format!("{wrong}: 1")).expect_err("unknown");
        let expected = format!("f.yaml:1:1: unknown key `{wrong}`; did you mean `{right}`?");
        prop_assert_eq!(errors[0].to_string(), expected);
    }
}
