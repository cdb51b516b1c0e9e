//! `plumbline check --explain`: which rules would judge an operation, and why the others would not.

use std::io::{self, Write};

use model::{FileNames, Mount, Operation, PodNames, text::printable};
use probes::mounts::Mounts;

use crate::{
    config::{Config, ConfiguredRule, did_you_mean, quoted, short_container, user_number},
    scope::{Miss, OperationFacts, ScopeKey, groups, kept_of_process, last_component},
    view::table::{Table, TableColumn},
    who::Cgroup,
};

/// An operation that the command line describes.
#[derive(Debug)]
pub struct DescribedOperation {
    operation: Operation,
    mount: Mount,
    cgroup: Cgroup,
    user: Option<u32>,
    process: String,
    file: String,
    /// The given keys with their values.
    given: Vec<(String, String)>,
}

/// The result for one rule.
#[derive(Debug, serde::Serialize)]
pub struct RuleExplanation<'c> {
    #[serde(rename = "type")]
    kind: &'static str,
    rule: &'c str,
    /// Whether the rule judges the operation.
    judges: bool,
    because: String,
}

impl DescribedOperation {
    /// Parses `probe=nfs op=WRITE mount=/mnt/a ...`. If server and file-system type are not given, they come from the mount.
    ///
    /// # Errors
    /// What is wrong with the text, and what to do.
    pub fn parse(text: &str, mounts: &Mounts) -> Result<Self, String> {
        let given = pairs(text)?;
        let value = |key: &str| given.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let operation = operation(value("probe"), value("op"))?;
        let text = |key: ScopeKey| value(key.name()).map(str::to_owned);
        let mountpoint = text(ScopeKey::Mount).unwrap_or_default();
        let mounted = mounts.at(mountpoint.as_bytes()).map(|point| point.mount.clone());
        let mounted = mounted.unwrap_or(Mount { mountpoint, ..Mount::default() });
        let mount = Mount {
            server: text(ScopeKey::Server).unwrap_or(mounted.server),
            fstype: text(ScopeKey::Fstype).unwrap_or(mounted.fstype),
            ..mounted
        };
        let at = Cgroup::at(text(ScopeKey::Cgroup).unwrap_or_default());
        let container = value(ScopeKey::Container.name()).map(|id| short_container(id).to_owned());
        let cgroup = Cgroup {
            container: container.unwrap_or(at.container),
            job: text(ScopeKey::Job).unwrap_or(at.job),
            path: at.path,
            names: PodNames {
                namespace: text(ScopeKey::Namespace).unwrap_or_default(),
                pod: text(ScopeKey::Pod).unwrap_or_default(),
                workload: text(ScopeKey::Workload).unwrap_or_default(),
                container_name: String::new(),
            },
        };
        let user = value(ScopeKey::User.name()).map(user_number).transpose()?;
        let file = text(ScopeKey::File).unwrap_or_default();
        let file = match operation.protocol().file_names {
            FileNames::Last => String::from_utf8_lossy(last_component(file.as_bytes())).into_owned(),
            FileNames::None | FileNames::Path => file,
        };
        let process = text(ScopeKey::Process).unwrap_or_default();
        Ok(Self { operation, mount, cgroup, user, process, file, given })
    }

    /// The results for all rules of the operation's probe: rules of one type together, the most specific first.
    pub fn explain<'c>(&self, config: &'c Config) -> Vec<RuleExplanation<'c>> {
        let process = kept_of_process(&self.process);
        let about = OperationFacts {
            mount: &self.mount,
            cgroup: &self.cgroup,
            user: self.user,
            process: process.as_bytes(),
            file: self.file.as_bytes(),
        };
        let protocol = self.operation.protocol();
        let name = |index: &usize| config.rules.get(*index).map_or("", |one| one.rule.name());
        let mut lines = Vec::new();
        for group in groups(&config.rules).iter().filter(|group| *group.protocol == *protocol) {
            let judging: Vec<usize> = group.judging(self.operation, &about).collect();
            for index in group.members() {
                let Some(rule) = config.rules.get(index) else { continue };
                let others: Vec<_> = judging.iter().filter(|other| **other != index).map(name).collect();
                let judges = judging.contains(&index);
                let because = if judges { why(rule, &others) } else { self.why_not(rule, &about, &others) };
                lines.push(RuleExplanation { kind: group.kind, rule: rule.rule.name(), judges, because });
            }
        }
        lines
    }

    /// Prints the results.
    ///
    /// # Errors
    /// When printing fails.
    pub fn print(&self, out: &mut impl Write, lines: &[RuleExplanation<'_>], room: Option<usize>) -> io::Result<()> {
        if lines.is_empty() {
            return writeln!(out, "no rule is about operations of probe {}", self.operation.protocol().name);
        }
        let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(str::len).max().unwrap_or_default();
        let columns = [
            TableColumn::text("TYPE", longest(&mut lines.iter().map(|line| line.kind))),
            TableColumn::text("RULE", longest(&mut lines.iter().map(|line| line.rule)).max(4)),
            TableColumn::text("JUDGES", 6),
            TableColumn::rest("BECAUSE", 20).wrapped(),
        ];
        let table = Table::new(&columns, room);
        table.header(out)?;
        for line in lines {
            table.row(out, &[line.kind, line.rule, if line.judges { "yes" } else { "no" }, &line.because])?;
        }
        Ok(())
    }

    fn why_not(&self, rule: &ConfiguredRule, about: &OperationFacts<'_>, judging: &[&str]) -> String {
        if !rule.rule.judges(self.operation) {
            return format!("the rule's `mode` and lists exclude {}", self.operation.name());
        }
        match rule.scope.miss(about) {
            Some(Miss::Only(condition)) => match self.known(condition.key) {
                Some(value) => {
                    format!("the rule is only for {condition}, and the operation's {} is {value}", condition.key.name())
                }
                None => format!(
                    "the rule is only for {condition}, and the operation's {} is not known",
                    condition.key.name()
                ),
            },
            Some(Miss::Except(condition)) => format!("the rule is not for {condition}"),
            None => format!("{} is more specific", judging.join(" and ")),
        }
    }

    /// The value of a key that is given or can be derived.
    fn known(&self, key: ScopeKey) -> Option<String> {
        let given = || self.given.iter().find(|(name, _)| name == key.name()).map(|(_, value)| value.clone());
        let known = match key {
            ScopeKey::Server => Some(self.mount.server.clone()),
            ScopeKey::Fstype => Some(self.mount.fstype.clone()),
            ScopeKey::Container => Some(self.cgroup.container.clone()),
            ScopeKey::Job => Some(self.cgroup.job.clone()),
            ScopeKey::Namespace => Some(self.cgroup.names.namespace.clone()),
            ScopeKey::Pod => Some(self.cgroup.names.pod.clone()),
            ScopeKey::Workload => Some(self.cgroup.names.workload.clone()),
            ScopeKey::Mount | ScopeKey::User | ScopeKey::Cgroup | ScopeKey::Process | ScopeKey::File => given(),
        };
        known.filter(|value| !value.is_empty()).map(|value| printable(value.as_bytes()))
    }
}

/// Why a rule judges an operation. `others`: further rules that judge it.
fn why(rule: &ConfiguredRule, others: &[&str]) -> String {
    let scope = rule.scope.to_string();
    let armed = rule.when.as_ref().map(|when| format!(", {when}")).unwrap_or_default();
    let mut because = match (rule.scope.is_everything(), scope.strip_prefix("only ")) {
        (true, _) => "the rule is for all operations".to_owned(),
        (false, None) => format!("the rule is for all operations, {scope}"),
        (false, Some(only)) => format!("the rule is for {only}"),
    };
    because += &armed;
    if !others.is_empty() {
        because += &format!(
            "; {} as specific",
            if let [other] = others { format!("{other} is") } else { format!("{} are", others.join(" and ")) }
        );
    }
    because
}

/// The operation of this name of the probe.
fn operation(probe: Option<&str>, name: Option<&str>) -> Result<Operation, String> {
    let protocols = || probes::protocols().map(|protocol| protocol.name);
    let list = |names: Vec<&str>| names.join(", ");
    let Some(probe) = probe else {
        return Err(format!("no probe is named; write `probe=` and one of {}", list(protocols().collect())));
    };
    let Some(protocol) = probes::protocol(probe) else {
        let hint = did_you_mean(probe, protocols());
        let hint = hint.unwrap_or_else(|| format!("write one of {}", list(protocols().collect())));
        return Err(format!("there is no probe {}; {hint}", quoted(probe)));
    };
    let names = || protocol.all_operations().map(Operation::name);
    let Some(name) = name else {
        return Err(format!("no operation is named; write `op=` and one of {}", list(names().collect())));
    };
    protocol.operation(name).ok_or_else(|| {
        let hint = did_you_mean(name, names());
        let hint = hint.unwrap_or_else(|| format!("write one of {}", list(names().collect())));
        format!("probe `{}` has no operation {}; {hint}", protocol.name, quoted(name))
    })
}

/// Pairs `KEY=VALUE`, separated by spaces. A value in double quotes may contain spaces.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let keys: Vec<_> = ["probe", "op"].into_iter().chain(ScopeKey::ALL.map(|(name, _)| name)).collect();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for word in words(text)? {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!("{} is no `KEY=VALUE`; write {}=..., say", quoted(&word), keys.join("=..., ")));
        };
        if !keys.contains(&key) {
            let hint = did_you_mean(key, keys.iter().copied());
            let hint = hint.unwrap_or_else(|| format!("the keys are {}", keys.join(", ")));
            return Err(format!("there is no key {}; {hint}", quoted(key)));
        }
        if value.is_empty() {
            return Err(format!("`{key}` has no value; write one or leave the key out"));
        }
        if pairs.iter().any(|(known, _)| known == key) {
            return Err(format!("`{key}` is given twice; an operation has one, so remove the other"));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quotes) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quotes = !quotes,
            c if c.is_whitespace() && !quotes => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    if quotes {
        return Err("a double quote is not closed; close it".to_owned());
    }
    words.push(word);
    Ok(words.into_iter().filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KnownNames;

    const MOUNTINFO: &[u8] = b"63 28 0:51 / /mnt/a rw - nfs4 srv:/export rw,addr=10.0.0.1\n";

    const RULES: &str = "anomalies:
  all: {type: latency, probe: nfs}
  postgres: {type: latency, probe: nfs, only: {server: srv, process: postgres}}
  reads: {type: latency, probe: nfs, mode: trackonly, track_commands: [READ], only: {mount: /mnt/a}}
  stalled: {type: stalled, probe: nfs, except: {user: root, fstype: \"nfs*\"}}
  errors: {type: error, probe: nfs, only: {job: \"slurm:*\"}}
  others: {type: error, probe: nfs, only: {mount: /mnt/b}}
  calls: {type: latency, probe: syscalls}
  tighter: {type: latency, probe: nfs, when: {incident: errors, on: server}, only: {mount: /mnt/b}}
";

    fn explained(operation: &str) -> String {
        let config = Config::parse(RULES, "f.yaml", &KnownNames::to_this_program()).unwrap();
        let asked = DescribedOperation::parse(operation, &Mounts::parse(MOUNTINFO)).unwrap();
        let mut out = Vec::new();
        asked.print(&mut out, &asked.explain(&config), None).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_rule_of_the_probe_has_a_line_that_says_why() {
        assert_eq!(
            explained("probe=nfs op=write mount=/mnt/a process=postgres user=7"),
            "\
TYPE     RULE      JUDGES  BECAUSE
latency  postgres  yes     the rule is for server srv, process postgres
latency  reads     no      the rule's `mode` and lists exclude WRITE
latency  all       no      postgres is more specific
stalled  stalled   no      the rule is not for fstype nfs*
error    errors    no      the rule is only for job slurm:*, and the operation's job is not known
error    others    no      the rule is only for mount /mnt/b, and the operation's mount is /mnt/a
latency  tighter   no      the rule is only for mount /mnt/b, and the operation's mount is /mnt/a
"
        );
        assert_eq!(
            explained("probe=nfs op=READ mount=/mnt/b fstype=odd cgroup=/system.slice/slurmstepd.scope/job_7/step_0"),
            "\
TYPE     RULE      JUDGES  BECAUSE
latency  postgres  no      the rule is only for server srv, and the operation's server is not known
latency  reads     no      the rule is only for mount /mnt/a, and the operation's mount is /mnt/b
latency  all       yes     the rule is for all operations
stalled  stalled   yes     the rule is for all operations, except user root, fstype nfs*
error    errors    yes     the rule is for job slurm:*; others is as specific
error    others    yes     the rule is for mount /mnt/b; errors is as specific
latency  tighter   yes     the rule is for mount /mnt/b, while errors has an incident on the same server, until 60s after its last anomaly
"
        );
        assert_eq!(explained("probe=smb op=READ"), "no rule is about operations of probe smb\n");
    }

    #[test]
    fn what_is_no_operation_is_refused_with_the_correction() {
        for (text, expected) in [
            ("op=READ", "no probe is named; write `probe=` and one of smb, syscalls,"),
            ("probe=nsf op=READ", "there is no probe `nsf`; did you mean `nfs`?"),
            ("probe=nfs", "no operation is named; write `op=` and one of NULL, READ,"),
            ("probe=nfs op=WRIET", "probe `nfs` has no operation `WRIET`; did you mean `WRITE`?"),
            ("probe=nfs op=READ mont=/a", "there is no key `mont`; did you mean `mount`?"),
            ("probe=nfs op=READ /mnt/a", "`/mnt/a` is no `KEY=VALUE`; write probe=..., op=...,"),
            ("probe=nfs op=READ user=roott", "there is no user `roott` in /etc/passwd; did you mean `root`?"),
            ("probe=nfs probe=smb op=READ", "`probe` is given twice; an operation has one, so remove the other"),
            ("probe=nfs op=READ file=", "`file` has no value; write one or leave the key out"),
            ("probe=nfs op=\"READ", "a double quote is not closed; close it"),
        ] {
            let problem = DescribedOperation::parse(text, &Mounts::default()).unwrap_err();
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_value_in_quotes_may_have_spaces() {
        let asked =
            DescribedOperation::parse("probe=nfs op=READ process=\"Web Content\" file=/x/y.tmp", &Mounts::default())
                .unwrap();
        assert_eq!((asked.process.as_str(), asked.file.as_str()), ("Web Content", "y.tmp"));
    }
}
