//! Updates an incident's verdict with what its server saw.

use model::{Incident, Layer, PhasesMs, Verdict};

use super::{EndsRefusal, EndsStory, EndsTimes};

/// Sentences about the server's side begin with this in a verdict that is this host's own.
const SAID: &str = "The server was asked: ";

/// The verdict of both ends on an incident.
#[derive(Debug, Clone, PartialEq)]
pub struct BothSides {
    /// The verdict; it may be unproven.
    pub verdict: Verdict,
}

impl From<&EndsStory> for BothSides {
    fn from(story: &EndsStory) -> Self {
        let told = &story.verdict;
        let verdict = Verdict {
            layer: told.layer,
            confidence: told.confidence,
            cause: told.cause,
            alternatives: Vec::new(),
            because: told.because.clone(),
            phases_ms: phases(&story.times),
            proven: told.proven,
        };
        Self { verdict }
    }
}

impl From<&EndsRefusal> for BothSides {
    fn from(refusal: &EndsRefusal) -> Self {
        Self::unusable(&refusal.to_string())
    }
}

/// Milliseconds by phase.
fn phases(times: &EndsTimes) -> PhasesMs {
    let ms = |time: u64| Some(time as f64 / 1e6);
    PhasesMs {
        queue: ms(times.queue),
        send: ms(times.held),
        network: ms(times.network),
        server: ms(times.server()),
        deliver: ms(times.unread.saturating_add(times.deliver)),
    }
}

impl BothSides {
    /// The result if the server's answer cannot be used, for the reason `why`.
    pub fn unusable(why: &str) -> Self {
        Self { verdict: Verdict::unknown(format!("its answer cannot be used: {why}")) }
    }

    /// A proven verdict becomes the incident's; this host's own verdict is kept beside it. An unproven verdict only adds a sentence to this host's
    /// own. An earlier proven verdict stays unless a later verdict names another layer.
    pub fn settle(&self, incident: &mut Incident) {
        let was_proven = incident.own_verdict.is_some();
        if was_proven && !self.verdict.proven && self.agrees(incident.verdict.layer) {
            return;
        }
        let mut own = incident.own_verdict.take().unwrap_or_else(|| std::mem::take(&mut incident.verdict));
        own.because.retain(|sentence| !sentence.starts_with(SAID));
        if self.verdict.proven {
            let mut both = self.verdict.clone();
            both.because.push(format!("This host's own verdict: {}.", short(&own)));
            (incident.verdict, incident.own_verdict) = (both, Some(own));
        } else {
            let why = self.verdict.because.join(" ");
            let said = match self.verdict.layer {
                Layer::Unknown => why,
                _ => format!("{}, which is not proven. {why}", short(&self.verdict)),
            };
            own.because.push(format!("{SAID}{said}"));
            incident.verdict = own;
        }
    }

    fn agrees(&self, layer: Layer) -> bool {
        [layer, Layer::Unknown].contains(&self.verdict.layer)
    }
}

/// The layer, its confidence and the cause, as text.
fn short(verdict: &Verdict) -> String {
    let cause = verdict.cause.map(|cause| format!(", {}", cause.describe())).unwrap_or_default();
    match verdict.layer {
        Layer::Unknown => "unknown".to_owned(),
        layer => format!("{} ({:.0} % sure){cause}", layer.name(), verdict.confidence * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use model::Cause;

    use super::*;

    fn verdict(layer: Layer, confidence: f64, proven: bool) -> Verdict {
        let because = vec![format!("{} has it.", layer.name())];
        Verdict { layer, confidence, because, proven, ..Verdict::default() }
    }

    fn incident(layer: Layer) -> Incident {
        Incident { verdict: verdict(layer, 0.85, false), ..Incident::default() }
    }

    fn settled(mut incident: Incident, both: Verdict) -> Incident {
        BothSides { verdict: both }.settle(&mut incident);
        incident
    }

    #[test]
    fn a_proven_verdict_is_the_incidents_and_the_own_one_stays_beside_it() {
        let both = Verdict { cause: Some(Cause::SlowExecution), ..verdict(Layer::Server, 0.98, true) };
        let once = settled(incident(Layer::Network), both.clone());
        assert_eq!((once.verdict.layer, once.verdict.proven, once.verdict.cause), (Layer::Server, true, both.cause));
        assert_eq!(once.own_verdict, Some(verdict(Layer::Network, 0.85, false)));
        assert_eq!(once.verdict.because.last().unwrap(), "This host's own verdict: network (85 % sure).");
        assert_eq!(settled(once.clone(), both), once, "asked again, with the same answer");
    }

    #[test]
    fn what_is_not_proven_is_a_reason_of_the_own_verdict_and_said_once() {
        let both = verdict(Layer::Server, 0.85, false);
        let once = settled(incident(Layer::Network), both.clone());
        assert_eq!((once.verdict.layer, once.verdict.proven, &once.own_verdict), (Layer::Network, false, &None));
        let said = "The server was asked: server (85 % sure), which is not proven. server has it.";
        assert_eq!(once.verdict.because, ["network has it.", said]);
        assert_eq!(settled(once.clone(), both), once);
        let proven = settled(once, verdict(Layer::Network, 0.98, true));
        assert_eq!(proven.own_verdict, Some(verdict(Layer::Network, 0.85, false)), "then the sentence goes");
    }

    #[test]
    fn a_proof_outlives_a_later_answer_unless_that_contradicts_it() {
        let proven = settled(incident(Layer::Network), verdict(Layer::Network, 0.98, true));
        let refused = BothSides::from(&EndsRefusal::NothingServed);
        assert_eq!(settled(proven.clone(), refused.verdict), proven);
        assert_eq!(settled(proven.clone(), verdict(Layer::Network, 0.82, false)), proven);
        let contradicted = settled(proven, verdict(Layer::Server, 0.85, false));
        assert_eq!((contradicted.verdict.layer, contradicted.verdict.proven), (Layer::Network, false));
        assert_eq!(contradicted.own_verdict, None);
    }
}
