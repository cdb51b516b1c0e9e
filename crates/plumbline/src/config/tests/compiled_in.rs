//! The compiled-in configuration: what it says, and what a file gets of it.

use std::collections::BTreeSet;

use std::path::Path;

use super::{
    super::{AskedServers, COMPILED_IN, ConfiguredRule, EvidenceLimits, OtlpProtocol, Prometheus, Retention},
    *,
};

#[test]
fn the_compiled_in_configuration_is_valid_and_silent() {
    let config = Config::compiled_in().expect("valid");
    assert_eq!(config.notices, [""; 0]);
    assert_eq!(config.watch_interval, ms(1000));
    assert_eq!(config.output_dir, Path::new("/var/log/plumbline"));
    assert_eq!((config.all_filesystems, config.audit, config.cooldown), (false, false, ms(60_000)));
    let rules: Vec<_> = config.rules.iter().map(|one| one.rule.name()).collect();
    assert_eq!(
        rules,
        [
            "smb_latency",
            "smb_errors",
            "smb_stalled",
            "nfs_latency",
            "nfs_errors",
            "nfs_stalled",
            "connections",
            "cephproxy_latency",
            "cephproxy_errors",
            "cephproxy_stalled",
            "fuse_latency",
            "fuse_errors",
            "fuse_stalled",
            "server_latency",
            "ceph_latency",
            "ceph_errors",
            "ceph_stalled",
            "syscalls_latency",
            "syscalls_errors",
            "syscalls_stalled",
            "smb_baseline",
            "nfs_baseline",
            "syscalls_baseline"
        ]
    );
    assert_eq!(
        (thresholds(&config, "smb_latency")["SMB2_WRITE"], thresholds(&config, "smb_latency")["SMB2_READ"]),
        (50, 20)
    );
    let nfs = thresholds(&config, "nfs_latency");
    assert_eq!((nfs["WRITE"], nfs["COMMIT"], nfs["READ"]), (50, 200, 20));
    assert_eq!(thresholds(&config, "syscalls_latency")["read"], 200);
    let limits = EvidenceLimits { timeout: ms(5000), max_bytes: 1 << 20, concurrency: 2, recorder: ms(30_000) };
    assert_eq!(config.evidence, limits);
    let kept = Retention { interval: ms(60_000), max_age: ms(7 * 86_400_000), max_bytes: 256 << 20 };
    assert_eq!(config.cleanup, kept);
    let listen = Some("127.0.0.1:9437".parse().unwrap());
    assert_eq!(config.prometheus, Prometheus { listen, max_series: 1000 });
    assert_eq!((config.otlp, config.webhook, config.kubernetes_events), (None, None, None));
    assert_eq!(config.peers, None);
}

#[test]
fn peers_are_asked_and_told_where_the_file_says_so() {
    let files = "certificate: /etc/p/c.pem, key: /etc/p/c.key, authority: /etc/p/a.pem";
    let peers = |keys: &str| valid(&format!("peers: {{{keys}, {files}}}")).peers;
    let server = peers("listen: \"10.0.0.5:9438\"").expect("is on");
    assert_eq!((server.listen, server.timeout), (Some("10.0.0.5:9438".parse().unwrap()), ms(3000)));
    assert_eq!((server.ask.of("10.0.0.5"), server.key.as_path()), (None, Path::new("/etc/p/c.key")));
    let each = peers("ask: 9438, timeout_sec: 1").expect("is on");
    let at = |asked: &AskedServers, server: &str| asked.of(server).map(|at| at.to_string());
    assert_eq!(at(&each.ask, "filer1").as_deref(), Some("filer1:9438"));
    assert_eq!(at(&each.ask, "fd00::5").as_deref(), Some("[fd00::5]:9438"));
    let listed = peers("ask: {filer1: \"filer1-admin:9438\", 10.0.0.5: \"10.9.0.5:9999\"}").expect("is on");
    assert_eq!(at(&listed.ask, "10.0.0.5").as_deref(), Some("10.9.0.5:9999"));
    assert_eq!(at(&listed.ask, "filer2"), None);
    assert_eq!((peers("ask: off"), peers("ask: {}, listen: off")), (None, None));
}

#[test]
fn metrics_are_served_where_the_file_says_and_a_note_says_who_may_read_them() {
    let prometheus = |text: &str| {
        let config = valid(text);
        (config.prometheus.listen.map(|address| address.to_string()), config.notices.len())
    };
    assert_eq!(prometheus("prometheus: {listen: off}"), (None, 0));
    assert_eq!(prometheus("prometheus:\n  listen: 127.0.0.1:80\n  max_series: 5"), (Some("127.0.0.1:80".into()), 0));
    assert_eq!(prometheus("prometheus: {listen: \"[::1]:9437\"}"), (Some("[::1]:9437".into()), 0));
    assert_eq!(prometheus("prometheus: {listen: \"0.0.0.0:9437\"}"), (Some("0.0.0.0:9437".into()), 1));
}

#[test]
fn every_probe_and_every_built_in_action_stands_in_the_compiled_in_file() {
    for protocol in probes::protocols() {
        let stands = |value| COMPILED_IN.contains(&format!("  {}: {value}", protocol.name));
        assert!(stands("true") || stands("false"), "probes: {}", protocol.name);
    }
    let config = Config::compiled_in().expect("valid");
    let snapshot: BTreeSet<_> = config.snapshot.iter().map(|action| action.name.as_str()).collect();
    assert_eq!(snapshot, KnownNames::to_this_program().actions.iter().copied().collect());
}

#[test]
fn what_a_file_leaves_out_is_as_compiled_in() {
    let text = "evidence: {concurrency: 7}\nprobes:\naudit: {enabled: Yes}\nanomalies:\n";
    let (config, default) = (valid(text), Config::compiled_in().expect("valid"));
    assert_eq!(config.evidence, EvidenceLimits { concurrency: 7, ..default.evidence });
    assert_eq!((config.probes, config.audit), (default.probes.clone(), true));
    assert_eq!((config.cleanup, config.output_dir_at), (default.cleanup, None));
    assert_eq!(config.rules.len(), 0, "anomalies are replaced as a whole");
    assert_eq!(config.notices, ["no rule detects anything: Plumbline measures operations, but opens no incident"]);
    assert_eq!(valid("{}").rules.len(), 23);
}

#[test]
fn a_rule_of_a_probe_that_is_switched_off_is_not_used() {
    let config = valid("probes: {syscalls: off}");
    assert_eq!(config.rules.len(), 19);
    assert_eq!(
        config.notices,
        ["latency", "errors", "stalled", "baseline"]
            .map(|kind| format!("the rule `syscalls_{kind}` is not used: `probes` switches its probe `syscalls` off"))
    );
}

#[test]
fn custom_actions_take_what_they_leave_out_from_evidence() {
    let config = valid(concat!(
        "evidence: {timeout_sec: 1.5, max_kb: 8}\n",
        "custom_actions: {routes: {command: [ip, route, 5]}, long: {command: [/bin/true], timeout_sec: 60, max_kb: 1, max_memory_mb: 9}}\n",
        "snapshot: {actions: [routes, dmesg]}\n",
    ));
    let [routes, long] = config.custom_actions.as_slice() else { panic!("{:?}", config.custom_actions) };
    assert_eq!(routes.command, ["ip", "route", "5"]);
    assert_eq!((routes.timeout, routes.max_bytes), (ms(1500), 8192));
    assert_eq!((long.timeout, long.max_bytes), (ms(60_000), 1024));
    assert_eq!((routes.max_memory, long.max_memory), (256 << 20, 9 << 20));
    assert_eq!(config.snapshot[0].name, "routes");
}

#[test]
fn older_yaml_loads_too() {
    let config =
        valid("\u{feff}---\r\nall_filesystems: ON\r\nwatch_interval_sec:\t0.5\r\nprobes: {smb: no}\r\n...\r\n");
    assert_eq!(
        (config.all_filesystems, config.watch_interval, config.probes.len()),
        (true, ms(500), Config::compiled_in().expect("valid").probes.len() - 1)
    );
}

#[test]
fn the_rules_about_what_is_usual_in_the_compiled_in_file_are_the_defaults() {
    let commented = COMPILED_IN.lines().skip_while(|line| !line.starts_with("  #   nfs_throughput:"));
    let commented: Vec<_> = commented.map_while(|line| line.strip_prefix("  #   ")).collect();
    let written = valid(&format!("anomalies:\n  {}", commented.join("\n  ")));
    let left_out = valid("anomalies: {nfs_throughput: {type: throughput, probe: nfs}}");
    assert_eq!(written.rules.len(), 1);
    assert_eq!(format!("{:?}", written.rules), format!("{:?}", left_out.rules));
    let on = Config::compiled_in().expect("valid").rules;
    assert!(on.iter().all(|one| one.rule.kind() != "throughput"), "off unless configured");
    let rule = |rules: &[ConfiguredRule], name| {
        rules.iter().find(|one| one.rule.name() == name).map(|one| format!("{:?}", one.rule))
    };
    let left_out = valid("anomalies: {nfs_baseline: {type: baseline, probe: nfs}}").rules;
    assert!(rule(&on, "nfs_baseline").is_some());
    assert_eq!(rule(&on, "nfs_baseline"), rule(&left_out, "nfs_baseline"));
}

#[test]
fn a_collector_is_named_with_what_it_wants_and_no_secret_is_shown() {
    let config = valid("otlp: {endpoint: 'https://c.example:4318/otlp', protocol: http, headers: {X-Token: secret}}");
    let otlp = config.otlp.as_ref().expect("is on");
    assert_eq!((otlp.endpoint.to_string(), otlp.protocol), ("https://c.example:4318/otlp".into(), OtlpProtocol::Http));
    assert_eq!((otlp.interval, otlp.timeout, otlp.buffer), (ms(30_000), ms(10_000), 4 << 20));
    assert_eq!(otlp.headers["x-token"], "secret");
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(valid("otlp: {endpoint: off, headers: {a: b}}").otlp, None);
}

#[test]
fn the_secret_of_a_webhook_is_not_shown() {
    let config = valid("webhook: {url: 'https://chat.example/hooks/secret?key=secret', headers: {X-Token: secret}}");
    let webhook = config.webhook.as_ref().expect("is on");
    assert_eq!((webhook.url.path(), webhook.timeout, webhook.headers.len()), ("/hooks/secret", ms(10_000), 1));
    assert_eq!(webhook.shown(), "https://chat.example/...");
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(valid("webhook: {url: off}").webhook, None);
}
