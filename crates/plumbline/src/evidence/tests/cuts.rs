//! Captures' files: those of the time before come with the bundle, those of the time after are added.

use anyhow::{Result, bail};

use super::*;
use crate::capture::Sink;

/// A capture that has files of so many bytes, and then fails.
struct Fake(Vec<(&'static str, usize)>, Option<&'static str>);

impl Capture for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn describe(&self) -> String {
        "nothing real".to_owned()
    }

    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()> {
        for (suffix, bytes) in &self.0 {
            sink.file(suffix, &mut |out| Ok(out.write_all(&vec![b'0' + span.from as u8; *bytes])?))?;
        }
        match self.1 {
            Some("panic") => panic!("as it should"),
            Some(error) => bail!(error),
            None => Ok(()),
        }
    }
}

fn cut(fake: Fake, from: u64, is_after: bool) -> Cut {
    Cut { capture: Arc::new(fake), span: CaptureSpan { from, to: from + 1 }, is_after }
}

#[test]
fn files_of_before_and_after_have_a_record_each_and_the_rest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    let before = cut(Fake(vec![(".pcapng", 3), (".x/../y", 1)], None), 1, false);
    let whole = BundleRequest { cuts: vec![before], ..request(&id(1), vec![text("events.jsonl", "one\n")], vec![]) };
    let path = written(&one(&collector, whole)).to_owned();
    let old = unpack(&path);
    assert_eq!((&*old["fake.pcapng"], &*old["fake.x_.._y"]), (&b"111"[..], &b"1"[..]));
    let after = cut(Fake(vec![(".pcapng", 2)], Some("the oldest is left out")), 2, true);
    let part =
        BundleAddition { rule: String::new(), actions: vec![], cuts: vec![after], scope: IncidentScope::default() };
    collector.append(id(1), part).unwrap();
    assert_eq!(written(&answers(&collector, 1)[0]), path);
    let new = unpack(&path);
    assert_eq!(&*new["fake.after.pcapng"], b"22");
    for kept in ["incident.json", "events.jsonl", "fake.pcapng", "fake.x_.._y"] {
        assert_eq!(old[kept], new[kept], "{kept}");
    }
    let records: Vec<_> = manifest(&path)
        .iter()
        .map(|one| {
            (one["file"].as_str().unwrap().to_owned(), one["status"].as_str().unwrap().to_owned(), one["error"].clone())
        })
        .collect();
    assert_eq!(records.len(), 3);
    let last = ("fake.after.pcapng".to_owned(), "truncated".to_owned(), "the oldest is left out".into());
    assert_eq!(records[2], last);
}

#[test]
fn a_capture_that_has_nothing_or_panics_is_a_record_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start(&dir);
    for (n, (why, said)) in
        [("no packets", "no packets"), ("panic", "the capture panicked: as it should")].into_iter().enumerate()
    {
        let cuts = vec![cut(Fake(vec![], Some(why)), 1, false)];
        let path =
            written(&one(&collector, BundleRequest { cuts, ..request(&id(n as u64), vec![], vec![]) })).to_owned();
        let record = record(&path, "fake");
        assert_eq!(
            (&record["status"], &record["error"], &record["file"]),
            (&"failed".into(), &said.into(), &().into())
        );
    }
}

#[test]
fn a_capture_gets_its_share_of_the_disk_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(Settings { max_bytes: 1 << 20, ..settings(dir.path()) }).unwrap();
    let cuts = vec![cut(Fake(vec![(".a", 200 << 10), (".b", 200 << 10)], None), 1, false)];
    let path = written(&one(&collector, BundleRequest { cuts, ..request(&id(1), vec![], vec![]) })).to_owned();
    let files = unpack(&path);
    let limit = (256 << 10) / 16 * 15;
    assert_eq!((files["fake.a"].len(), files["fake.b"].len()), (200 << 10, limit - (200 << 10)));
    let failed: Vec<_> = manifest(&path).iter().map(|record| record["status"] == "failed").collect();
    assert_eq!(failed, [false, true]);
}
