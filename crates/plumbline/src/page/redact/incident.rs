//! Redacts an incident. Each type is destructured with all its fields, so that a new field does not compile until it is
//! handled here.

use std::borrow::Cow;

use model::{
    Anomaly, BelowLine, CallLine, Changed, ChildLine, Host, Incident, Losses, Mount, PodNames, RankedFile, RankedMount,
    RankedOperation, RankedProcess, Ranking, Span, Verdict, Waited,
};

use super::{event, known, prose, tokens::Tokens};
use crate::{config, evidence::IncidentId};

/// Replaces all names of the incident except those in sentences.
pub fn names(incident: Incident, tokens: &mut Tokens) -> Incident {
    let Incident {
        mut id,
        detected,
        window: Span { from, to },
        anomaly,
        verdict,
        // The page does not show it.
        own_verdict: _,
        state,
        first_seen,
        last_seen,
        changed,
        waited,
        top,
        losses,
        operations,
        windows,
        closed,
        also,
        calls,
        labels,
        host,
    } = incident;
    if IncidentId::parse(&id).is_none() {
        tokens.replace("incident", &mut id);
    }
    Incident {
        id,
        detected: known::time(detected),
        window: Span { from: known::time(from), to: known::time(to) },
        top: ranking(top, tokens),
        host: this(host, tokens),
        anomaly: anomaly_redacted(anomaly, tokens),
        verdict,
        own_verdict: None,
        state,
        first_seen: known::time(first_seen),
        last_seen: known::time(last_seen),
        changed: changed.into_iter().map(|one| change(one, tokens)).collect(),
        waited: waited.into_iter().map(|one| wait(one, tokens)).collect(),
        losses: lost(losses, tokens),
        operations,
        windows,
        closed,
        also,
        calls: calls.into_iter().map(|one| call(one, tokens)).collect(),
        labels: labels.into_iter().map(|one| label(one, tokens)).collect(),
    }
}

/// The operator may have written anything there.
fn label((mut key, mut value): (String, String), tokens: &mut Tokens) -> (String, String) {
    tokens.replace("label", &mut key);
    tokens.replace("text", &mut value);
    (key, value)
}

/// Redacts the sentences. Call it when all names have tokens.
pub fn sentences(incident: &mut Incident, tokens: &mut Tokens) {
    let Anomaly { name, rule, observed, limit, .. } = &mut incident.anomaly;
    let Verdict { because, .. } = &mut incident.verdict;
    // A file's name is a token already.
    let changed = incident.changed.iter_mut().flat_map(|changed| {
        let name = (changed.by != "file").then_some(&mut changed.name);
        name.into_iter().chain([&mut changed.said])
    });
    let all = [name, rule, observed, limit].into_iter().chain(because).chain(changed).chain(&mut incident.also);
    all.for_each(|text| prose::sentence(text, tokens));
}

fn anomaly_redacted(anomaly: Anomaly, tokens: &mut Tokens) -> Anomaly {
    let Anomaly { name, mut kind, mut probe, rule, observed, limit } = anomaly;
    if !config::is_kind(&kind) && kind != model::SNAPSHOT {
        tokens.replace("kind", kind.to_mut());
    }
    known::probe(&mut probe, tokens);
    Anomaly { name, kind, probe, rule, observed, limit }
}

fn this(host: Host, tokens: &mut Tokens) -> Host {
    let Host { mut name, kernel, plumbline, .. } = host;
    tokens.replace("host", &mut name);
    let (kernel, plumbline) = (known::version(&kernel), known::version(&plumbline));
    Host { name, kernel, plumbline, addresses: Vec::new() }
}

fn ranking(top: Ranking, tokens: &mut Tokens) -> Ranking {
    let Ranking { mut operations, mut mounts, mut processes, mut files } = top;
    for RankedMount { mount: Mount { mountpoint, source, server, fstype, pv }, pvc, share: _ } in &mut mounts {
        tokens.replace("mount", mountpoint);
        tokens.replace("server", server);
        tokens.replace("source", source);
        tokens.replace("volume", pv);
        tokens.replace("claim", pvc);
        if !is_filesystem(fstype) {
            tokens.replace("filesystem", fstype);
        }
    }
    for RankedOperation { operation, share: _ } in &mut operations {
        known::operation(operation, tokens);
    }
    for RankedProcess { pid: _, comm, cgroup, container, job, names, share: _ } in &mut processes {
        tokens.replace("process", comm);
        tokens.replace("cgroup", cgroup);
        tokens.replace("container", container);
        tokens.replace("job", job);
        let PodNames { namespace, pod, container_name, workload } = names;
        tokens.replace("namespace", namespace);
        tokens.replace("pod", pod);
        tokens.replace("container", container_name);
        tokens.replace("workload", workload);
    }
    for RankedFile { file, inode: _, mountpoint, share: _ } in &mut files {
        tokens.replace("file", file);
        tokens.replace("mount", mountpoint);
    }
    Ranking { operations, mounts, processes, files }
}

fn is_filesystem(name: &str) -> bool {
    ["cifs", "smb3", "nfs", "nfs4", "ceph", "fuse"].contains(&name)
}

fn change(changed: Changed, tokens: &mut Tokens) -> Changed {
    let Changed { mut by, mut name, share, per_second, normally_per_second, p99_ms, p99_without_ms, said } = changed;
    known::one_of(&["process", "client", "operation", "file", "connection"], "group", &mut by, tokens);
    if by == "file" {
        tokens.replace("file", &mut name);
    }
    Changed { by, name, share, per_second, normally_per_second, p99_ms, p99_without_ms, said }
}

fn wait(waited: Waited, tokens: &mut Tokens) -> Waited {
    let Waited { mut role, mut comm, mut state, total_ms, share, longest_ms, mut stack } = waited;
    known::one_of(&["requester", "receiver"], "role", &mut role, tokens);
    known::one_of(&["asleep", "blocked", "runnable", "running", "stopped"], "state", &mut state, tokens);
    tokens.replace("process", &mut comm);
    stack.iter_mut().for_each(|name| tokens.replace("function", name));
    Waited { role, comm, state, total_ms, share, longest_ms, stack }
}

fn lost(losses: Losses, tokens: &mut Tokens) -> Losses {
    let Losses { mut probes, consumed, not_understood, sampling_one_in } = losses;
    for (name, _) in &mut probes {
        let mut probe = Cow::Owned(std::mem::take(name));
        known::probe(&mut probe, tokens);
        *name = probe.into_owned();
    }
    Losses { probes, consumed, not_understood, sampling_one_in }
}

fn call(call: CallLine<'static>, tokens: &mut Tokens) -> CallLine<'static> {
    let CallLine { event: line, below } = call;
    let below = below.map(|mut below| {
        let BelowLine {
            children,
            children_count: _,
            children_ms: _,
            meanwhile,
            meanwhile_count: _,
            children_incomplete: _,
        } = &mut below;
        children.iter_mut().chain(meanwhile).for_each(|one| child(one, tokens));
        below
    });
    CallLine { event: event(line, tokens), below }
}

/// Redacts those fields of an operation below a call that the page shows.
fn child(child: &mut ChildLine<'static>, tokens: &mut Tokens) {
    let ChildLine { protocol, operation, status, errno, .. } = child;
    known::probe(protocol, tokens);
    known::operation(operation.to_mut(), tokens);
    known::outcome(status, tokens);
    known::outcome(errno, tokens);
}
