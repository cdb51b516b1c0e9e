//! The whole configuration in our own form. Missing keys come from the compiled-in file.

use std::{path::PathBuf, time::Duration};

use super::{
    CaptureConfig, CompiledIn, Config, EvidenceLimits, FlightRecorder, Retention, actions, aod, captures, conf_d,
    node::{Position, YamlEntry, YamlNode, YamlValue},
    observe, own, peers, publish,
    reader::{ConfigReader, NumberRange, find, quoted},
    rules, when,
};

const DAY_SEC: f64 = 86_400.0;

const TOP_KEYS: [&str; 22] = [
    "watch_interval_sec",
    "output_dir",
    "probes",
    "all_filesystems",
    "operations",
    "anomalies",
    "cooldown_sec",
    "snapshot",
    "observe",
    "summaries",
    "custom_actions",
    "captures",
    "evidence",
    "cleanup",
    "recorder",
    "audit",
    "prometheus",
    "otlp",
    "webhook",
    "kubernetes_events",
    "on_incident",
    "peers",
];

/// Sections of which single keys may be missing; any other value is replaced as a whole.
const SECTIONS: [&str; 12] = [
    "probes",
    "snapshot",
    "summaries",
    "evidence",
    "cleanup",
    "recorder",
    "audit",
    "prometheus",
    "otlp",
    "webhook",
    "kubernetes_events",
    "peers",
];

/// Reads a file's tree, and those that are merged into it. `None` only if the reader has noted a problem.
pub fn read(
    reader: &mut ConfigReader<'_>,
    tree: YamlNode,
    over: Vec<YamlNode>,
    defaults: &CompiledIn,
) -> Option<Config> {
    let YamlValue::Map(entries) = tree.value else {
        reader.refuse(tree.at, "a configuration is keys with values; write `key: value`, one a line");
        return None;
    };
    let own = aod::to_native(reader, entries);
    let mut all = with_defaults(defaults.entries(), own);
    if !over.is_empty() {
        over.into_iter().for_each(|tree| conf_d::lay_over(reader, &mut all, tree));
        all = with_defaults(defaults.entries(), all); // For what was removed.
    }
    reader.only_keys(&all, &TOP_KEYS, &aod::TOP_KEYS);
    let output_dir_at = find(&all, "output_dir").map(|entry| entry.value.at).filter(|at| at.file != usize::MAX);
    let all = ConfigSection { at: tree.at, entries: &all };

    let custom = all.get(reader, "custom_actions").and_then(|entry| reader.map("`custom_actions`", &entry.value));
    let custom = custom.unwrap_or_default();
    reader.custom_actions = actions::names(custom);
    let captures_entry = all.get(reader, "captures");
    let captures = captures_entry.and_then(|entry| reader.map("`captures`", &entry.value)).unwrap_or_default();
    reader.captures = actions::names(captures);
    let captures = captures::read(reader, captures);
    let evidence = evidence(reader, &all);
    let custom_actions = actions::custom(reader, custom, evidence.as_ref());

    let watch_interval = all.get(reader, "watch_interval_sec").and_then(|entry| reader.seconds(entry, 0.01, DAY_SEC));
    let cooldown = all.get(reader, "cooldown_sec").and_then(|entry| reader.seconds(entry, 0.0, DAY_SEC));
    let output_dir = all.get(reader, "output_dir").and_then(|entry| absolute(reader, entry));
    // Own operations come first, since the list of probes and the rules may name them.
    let operations = all.get(reader, "operations").map(|entry| own::read(reader, entry)).unwrap_or_default();
    let all_filesystems = all.get(reader, "all_filesystems").and_then(|entry| reader.flag(entry));
    let probes = probes(reader, &all);
    let rules = all.get(reader, "anomalies").map(|entry| rules::read(reader, entry));
    let snapshot = all.section(reader, "snapshot", &["actions"]);
    let snapshot =
        snapshot.and_then(|section| section.get(reader, "actions")).map(|entry| actions::read(reader, entry));
    let observe = all.get(reader, "observe").map(|entry| observe::read(reader, entry));
    let keep_summaries = observe::summaries(reader, &all);
    let cleanup = cleanup(reader, &all);
    let recorder = recorder(reader, &all, cleanup.as_ref());
    let audit = all.section(reader, "audit", &["enabled"]);
    let audit = audit.and_then(|section| section.get(reader, "enabled")).and_then(|entry| reader.flag(entry));
    let prometheus = publish::prometheus(reader, &all);
    let otlp = publish::otlp(reader, &all);
    let webhook = publish::webhook(reader, &all);
    let kubernetes_events = publish::kubernetes_events(reader, &all);
    let on_incident = all.get(reader, "on_incident").map(|entry| actions::optional_command(reader, entry));
    let peers = peers::peers(reader, &all);

    let ((probes, on_demand), mut rules) = (probes?, rules?);
    when::check_probes(reader, &all, &on_demand, &rules.detected);
    rules.detected.retain(|configured| {
        let watched = probes.contains(&configured.rule.protocol());
        if !watched {
            let (rule, probe) = (configured.rule.name(), configured.rule.protocol().name);
            reader.note(format!("the rule `{rule}` is not used: `probes` switches its probe `{probe}` off"));
        }
        watched
    });
    let captures = used_captures(reader, captures, |name| {
        let actions = rules.detected.iter().flat_map(|rule| &rule.actions).chain(snapshot.iter().flatten());
        let observed = observe.iter().flatten().flat_map(|one| &one.actions);
        actions.chain(observed).any(|action| action.name == name)
    });
    check_space(reader, captures_entry, &captures, cleanup.as_ref().zip(recorder.as_ref()));
    if rules.detected.is_empty() {
        reader.note("no rule detects anything: Plumbline measures operations, but opens no incident");
    }
    Some(Config {
        watch_interval: watch_interval?,
        output_dir: output_dir?,
        output_dir_at,
        probes,
        on_demand,
        all_filesystems: all_filesystems?,
        operations,
        rules: rules.detected,
        not_yet: rules.not_yet,
        cooldown: cooldown?,
        snapshot: snapshot?,
        observe: observe?,
        keep_summaries: keep_summaries?,
        custom_actions,
        captures,
        evidence: evidence?,
        cleanup: cleanup?,
        recorder: recorder?,
        audit: audit?,
        prometheus: prometheus?,
        otlp: otlp?,
        webhook: webhook?,
        kubernetes_events: kubernetes_events?,
        on_incident: on_incident?,
        peers: peers?,
        files: Vec::new(),
        notices: Vec::new(),
    })
}

/// The time limit of an action, in seconds.
pub fn timeout(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Duration> {
    reader.seconds(entry, 0.1, 300.0)
}

/// A size in KiB, as bytes.
pub fn kilobytes(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<u64> {
    reader.whole(entry, 1..=65_536).map(|kb| u64::from(kb) * 1024)
}

/// The entries of one map.
pub(super) struct ConfigSection<'n> {
    pub at: Position,
    entries: &'n [YamlEntry],
}

impl<'n> ConfigSection<'n> {
    pub fn get(&self, reader: &mut ConfigReader<'_>, key: &str) -> Option<&'n YamlEntry> {
        let entry = find(self.entries, key);
        if entry.is_none() {
            reader.refuse(self.at, format!("`{key}` is missing"));
        }
        entry
    }

    pub fn section(&self, reader: &mut ConfigReader<'_>, key: &str, keys: &[&str]) -> Option<ConfigSection<'n>> {
        let entry = self.get(reader, key)?;
        Some(ConfigSection { at: entry.at, entries: reader.section(entry, keys)? })
    }
}

/// The entries `own`, and those of `defaults` that it lacks.
fn with_defaults(defaults: &[YamlEntry], own: Vec<YamlEntry>) -> Vec<YamlEntry> {
    let left_out = defaults.iter().filter(|default| find(&own, &default.key).is_none()).cloned().collect::<Vec<_>>();
    let complete = |mut entry: YamlEntry| {
        let default = find(defaults, &entry.key).filter(|_| SECTIONS.contains(&entry.key.as_str()));
        if let Some(YamlValue::Map(default)) = default.map(|default| &default.value.value) {
            entry.value.value = match entry.value.value {
                YamlValue::Null => YamlValue::Map(default.clone()),
                YamlValue::Map(own) => YamlValue::Map(with_defaults(default, own)),
                wrong => wrong,
            };
        }
        entry
    };
    own.into_iter().map(complete).chain(left_out).collect()
}

/// When a probe is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Never,
    Always,
    OnDemand,
}

type Protocols = Vec<&'static model::Protocol>;

/// The probes to load, and those among them that are loaded on demand.
fn probes(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<(Protocols, Protocols)> {
    let known = &reader.protocols();
    let names: Vec<_> = known.iter().map(|protocol| protocol.name).collect();
    let section = all.section(reader, "probes", &names)?;
    let (mut enabled, mut on_demand) = (Vec::new(), Vec::new());
    for protocol in known {
        // A probe that the compiled-in file does not name is on.
        let loaded = match find(section.entries, protocol.name) {
            Some(entry) => loaded(reader, entry),
            None => Loaded::Always,
        };
        if loaded != Loaded::Never {
            enabled.push(*protocol);
        }
        if loaded == Loaded::OnDemand {
            on_demand.push(*protocol);
        }
    }
    if enabled.is_empty() {
        reader.refuse(section.at, format!("every probe is switched off; switch one of {} on", names.join(", ")));
    }
    Some((enabled, on_demand))
}

/// When the probe of this entry is loaded.
fn loaded(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Loaded {
    match &entry.value.value {
        YamlValue::Plain(text) if text == "on_demand" => Loaded::OnDemand,
        _ if reader.flag(entry) == Some(true) => Loaded::Always,
        _ => Loaded::Never,
    }
}

fn evidence(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<EvidenceLimits> {
    let section = all.section(reader, "evidence", &["timeout_sec", "max_kb", "concurrency", "recorder_sec"])?;
    let timeout = section.get(reader, "timeout_sec").and_then(|entry| timeout(reader, entry));
    let max_bytes = section.get(reader, "max_kb").and_then(|entry| kilobytes(reader, entry));
    let concurrency = section.get(reader, "concurrency").and_then(|entry| reader.whole(entry, 1..=16));
    let recorder = section.get(reader, "recorder_sec").and_then(|entry| reader.seconds(entry, 0.0, 300.0));
    let concurrency = usize::try_from(concurrency?).ok()?;
    Some(EvidenceLimits { timeout: timeout?, max_bytes: max_bytes?, concurrency, recorder: recorder? })
}

fn cleanup(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Retention> {
    let keys = ["cleanup_interval_sec", "max_log_age_days", "max_total_log_size_mb"];
    let section = all.section(reader, "cleanup", &keys)?;
    let [interval, age, size] = keys.map(|key| section.get(reader, key));
    let interval = interval.and_then(|entry| reader.seconds(entry, 0.01, DAY_SEC));
    let days = age.and_then(|entry| reader.number(entry, NumberRange::new(0.001, 3650.0, "days")));
    let mb = size.and_then(|entry| reader.number(entry, NumberRange::new(0.1, 1_048_576.0, "MiB")));
    let max_bytes = (mb? * 1_048_576.0) as u64;
    Some(Retention { interval: interval?, max_age: Duration::from_secs_f64(days? * DAY_SEC), max_bytes })
}

fn recorder(
    reader: &mut ConfigReader<'_>,
    all: &ConfigSection<'_>,
    cleanup: Option<&Retention>,
) -> Option<FlightRecorder> {
    let section = all.section(reader, "recorder", &["keep_minutes", "keep_mb"])?;
    let minutes = section.get(reader, "keep_minutes");
    let minutes = minutes.and_then(|entry| reader.number(entry, NumberRange::new(0.0, 10_080.0, "minutes")));
    let size = section.get(reader, "keep_mb")?;
    let mb = reader.number(size, NumberRange::new(1.0, 1_048_576.0, "MiB"))?;
    let recorder =
        FlightRecorder { keep: Duration::from_secs_f64(minutes? * 60.0), max_bytes: (mb * 1_048_576.0) as u64 };
    let all = cleanup.map_or(u64::MAX, |cleanup| cleanup.max_bytes);
    if recorder.reserved() > all / 2 {
        let most = all as f64 / 2.0 / 1_048_576.0;
        let text = format!(
            "`keep_mb` is more than half of `max_total_log_size_mb`, and incidents need room as well; write at most {most}, or \
             raise that"
        );
        reader.refuse(size.value.at, text);
        return None;
    }
    Some(recorder)
}

/// The captures that a rule or the snapshot names. Others do not run.
fn used_captures(
    reader: &mut ConfigReader<'_>,
    own: Vec<CaptureConfig>,
    is_used: impl Fn(&str) -> bool,
) -> Vec<CaptureConfig> {
    let aod = std::mem::take(&mut reader.aod_captures);
    let (used, unused): (Vec<_>, Vec<_>) = own.into_iter().chain(aod).partition(|capture| is_used(&capture.name));
    for capture in unused {
        reader.note(format!("the capture `{}` does not run: no rule names it in its `actions`", capture.name));
    }
    used
}

/// Refuses captures whose files leave too little room for bundles.
fn check_space(
    reader: &mut ConfigReader<'_>,
    entry: Option<&YamlEntry>,
    captures: &[CaptureConfig],
    kept: Option<(&Retention, &FlightRecorder)>,
) {
    let Some((entry, (cleanup, recorder))) = entry.zip(kept) else { return };
    let captures = Config::reserved_by_captures(captures);
    if captures > 0 && captures.saturating_add(recorder.reserved()) > cleanup.max_bytes / 2 {
        let text = "the files of captures (`max_mb`) and of the recorder may be more than half of `max_total_log_size_mb`, and incidents need \
                    room as well; write less, or raise that";
        reader.refuse(entry.at, text);
    }
}

fn absolute(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<PathBuf> {
    let text = reader.word(entry)?;
    let wrong = if text.contains('\0') {
        "has a NUL byte in it; remove it"
    } else if !text.starts_with('/') {
        "is not absolute; begin it with `/`"
    } else if text.split('/').any(|part| part == "..") {
        "has `..` in it; write the path without"
    } else if text.trim_matches('/').is_empty() {
        "is the root directory; write a directory of its own, such as /var/log/plumbline"
    } else {
        return Some(PathBuf::from(text));
    };
    reader.refuse(entry.value.at, format!("the output directory {} {wrong}", quoted(text)));
    None
}
