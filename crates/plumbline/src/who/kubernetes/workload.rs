//! Derives the workload from the pod's name, which the controller that creates the pod derives from its own name.

/// The characters of random parts of names (k8s.io/apimachinery, pkg/util/rand): no vowels, and no 0, 1 or 3.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Random characters at the end of a generated name (k8s.io/apiserver, pkg/storage/names).
const RANDOM: usize = 5;

/// The workload: `web` of `web-7c5ddbdf54-x8f2k` (Deployment), `web-0` (StatefulSet), `web-x8f2k` (DaemonSet, Job, ReplicaSet) and
/// `web-29123456-x8f2k` (CronJob); empty for all other names.
pub fn workload_of(pod: &str) -> &str {
    let Some((name, last)) = pod.rsplit_once('-').filter(|(name, _)| !name.is_empty()) else { return "" };
    if is_random(last, RANDOM..=RANDOM) {
        // A ReplicaSet has the name of its Deployment and the template's hash; a Job has the name of its CronJob and the minute when it was due.
        return match name.rsplit_once('-') {
            Some((above, part)) if !above.is_empty() && (is_random(part, 6..=10) || is_minute(part)) => above,
            _ => name,
        };
    }
    let is_ordinal = last == "0" || !last.starts_with('0') && is_digits(last) && last.len() <= 5;
    if is_ordinal { name } else { "" }
}

fn is_random(part: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    lengths.contains(&part.len()) && part.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// Whether this is a number of minutes since 1970; before Kubernetes 1.21, of seconds.
fn is_minute(part: &str) -> bool {
    is_digits(part) && matches!(part.len(), 8 | 10)
}

fn is_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pod_is_named_after_its_workload() {
        for (pod, workload) in [
            ("web-7c5ddbdf54-x8f2k", "web"),
            ("my-web-app-6d4b75cb6d-zk9vn", "my-web-app"),
            ("db-0", "db"),
            ("db-12", "db"),
            ("fluentd-x8f2k", "fluentd"),
            ("backup-29123456-x8f2k", "backup"),
            ("backup-1619827200-x8f2k", "backup"),
            ("train-3-x8f2k", "train-3"),
            // A name by hand, a static pod, what has only the look of it.
            ("nginx", ""),
            ("kube-apiserver-node1", ""),
            ("a-01", ""),
            ("a-aeiou", ""),
            ("-x8f2k", ""),
            ("-", ""),
            ("", ""),
        ] {
            assert_eq!(workload_of(pod), workload, "{pod}");
        }
    }

    proptest! {
        #[test]
        fn a_workload_is_how_the_name_begins(pod: String) {
            let workload = workload_of(&pod);
            prop_assert!(pod.starts_with(workload) && (workload.is_empty() || workload.len() + 2 <= pod.len()));
        }
    }
}
