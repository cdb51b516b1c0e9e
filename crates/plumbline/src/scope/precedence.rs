//! Which of several rules of one type and probe judges an operation.

use std::sync::Arc;

use diagnose::rule::Rule;
use model::{Operation, Protocol};

use super::{On, OperationFacts, Scope, ScopeKey};
use crate::config::ConfiguredRule;

/// The rules of one type and probe. A rule with `when` is a group of its own, which judges independently of the others. Among the rules that judge
/// operations of a kind and whose scopes include an operation, those with the most keys in `only` judge it: usually one, or several with equally
/// many keys.
pub struct RuleGroup {
    /// The protocol whose operations the rules judge.
    pub protocol: &'static Protocol,
    /// The type.
    pub kind: &'static str,
    /// The most specific first; equally specific ones in the order of the file.
    members: Vec<Member>,
    /// Whether a scope refers to properties of the mount.
    pub asks_mount: bool,
    /// Whether a scope refers to properties of the cgroup.
    pub asks_cgroup: bool,
    /// Whether the rule has `when`, and so judges only while it is armed.
    is_chained: bool,
}

struct Member {
    /// The index among all rules.
    index: usize,
    rule: Arc<dyn Rule>,
    scope: Scope,
}

/// The groups of these rules, in the order of the file.
pub fn groups(rules: &[ConfiguredRule]) -> Vec<RuleGroup> {
    let mut groups: Vec<RuleGroup> = Vec::new();
    for (index, ConfiguredRule { rule, scope, when, .. }) in rules.iter().enumerate() {
        let (protocol, kind) = (rule.protocol(), rule.kind());
        let member = Member { index, rule: Arc::clone(rule), scope: scope.clone() };
        let joins = |group: &&mut RuleGroup| !group.is_chained && group.kind == kind && group.protocol == protocol;
        match groups.iter_mut().find(joins).filter(|_| when.is_none()) {
            Some(group) => group.members.push(member),
            None => {
                let on = when.as_ref().map(|when| when.on);
                groups.push(RuleGroup {
                    protocol,
                    kind,
                    members: vec![member],
                    asks_mount: matches!(on, Some(On::Mount | On::Server)),
                    asks_cgroup: on == Some(On::Job),
                    is_chained: on.is_some(),
                });
            }
        }
    }
    for group in &mut groups {
        group.members.sort_by_key(|member| std::cmp::Reverse(member.scope.keys()));
        group.asks_mount |= group.members.iter().any(|member| member.scope.asks(ScopeKey::is_of_mount));
        group.asks_cgroup |= group.members.iter().any(|member| member.scope.asks(ScopeKey::is_of_cgroup));
    }
    groups
}

impl RuleGroup {
    /// Whether a rule has a scope or `when`. Otherwise each rule judges all operations of its protocol, and no properties are needed.
    pub fn is_scoped(&self) -> bool {
        self.is_chained || self.members.iter().any(|member| !member.scope.is_everything())
    }

    /// The indexes of the rules among all rules.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|member| member.index)
    }

    /// The rules that judge the operation.
    pub fn judging(&self, operation: Operation, about: &OperationFacts<'_>) -> impl Iterator<Item = usize> {
        let covers = move |member: &&Member| member.rule.judges(operation) && member.scope.covers(about);
        let mut most = None;
        let is_most = move |member: &&Member| *most.get_or_insert(member.scope.keys()) == member.scope.keys();
        self.members.iter().filter(covers).take_while(is_most).map(|member| member.index)
    }
}
