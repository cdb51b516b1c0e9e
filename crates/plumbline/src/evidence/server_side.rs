//! Adds the server's answers to a bundle, with the story from the data of client and server, and the verdict of that story.

use std::{io::Read, sync::Arc};

use anyhow::{Context as _, Result};
use diagnose::ends::{BothSides, EndsRefusal};

use super::{
    Attachment, BundleOutcome, Settings,
    bundle::{each_entry, json, read_incident},
    collect::{Workshop, open_bundle},
    id::IncidentId,
    store::Store,
};
use crate::join::join_answers;

/// The files of the answers in a bundle, in the order of their arrival. A bundle has at most these.
const ANSWERS: [&str; 6] = [
    "server-1.tar.zst",
    "server-2.tar.zst",
    "server-3.tar.zst",
    "server-4.tar.zst",
    "server-5.tar.zst",
    "server-6.tar.zst",
];
/// How often an incident's server is asked at most.
pub const MAX_ANSWERS: usize = ANSWERS.len();
/// The file of the story, which is the output of `plumbline join --json`.
const JOINED: &str = "joined.json";
/// The largest answer, bytes.
pub const MAX_ANSWER: usize = 4 << 20;

impl Workshop {
    /// Joins a bundle with this answer of its server and with the previous ones. If the answer cannot be used, the verdict gets a reason that
    /// says so, and the answer is not kept.
    ///
    /// # Errors
    /// As [`Workshop::update`].
    pub fn join(&self, settings: Arc<Settings>, id: IncidentId, answer: Vec<u8>) -> Result<BundleOutcome> {
        let store = Store::open(&settings.output_dir, settings.folder)?;
        let open = || -> Result<Box<dyn Read>> { Ok(Box::new(open_bundle(&store, &id)?)) };
        let cannot = || format!("cannot update {}", store.path_of(&id).display());
        let mut incident = read_incident(open()?).with_context(cannot)?;
        let mut answers = answers(open()?).with_context(cannot)?;
        answers.push(answer);
        let mut attachments = Vec::new();
        match join_answers(&open, &answers) {
            Ok((story, report)) => {
                BothSides::from(&story).settle(&mut incident);
                let place = ANSWERS.get(answers.len() - 1);
                attachments.extend(place.zip(answers.pop()).map(|(name, answer)| attachment(name, answer)));
                attachments.push(attachment(JOINED, json(&report)?));
            }
            Err(error) => {
                let both = match error.downcast_ref::<EndsRefusal>() {
                    Some(refusal) => BothSides::from(refusal),
                    None => BothSides::unusable(&format!("{error:#}")),
                };
                both.settle(&mut incident);
            }
        }
        self.rewrite(settings, id, incident, (attachments, None), true)
    }
}

fn attachment(name: &'static str, content: Vec<u8>) -> Attachment {
    Attachment { name, write: Box::new(move |out| out.write_all(&content)) }
}

/// The server's previous answers in a bundle.
fn answers(bundle: impl Read) -> Result<Vec<Vec<u8>>> {
    let mut answers = Vec::new();
    each_entry(bundle, |name, _, content| {
        if ANSWERS.contains(&name) {
            let mut answer = Vec::new();
            content.take(MAX_ANSWER as u64).read_to_end(&mut answer)?;
            answers.push(answer);
        }
        Ok(true)
    })?;
    Ok(answers)
}
