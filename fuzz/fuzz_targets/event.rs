//! Bytes from the ring: decoded or refused, and what is decoded prints safely.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(event) = probes::decode_event(bytes) else { return };
    assert!(event.weight > 0);
    assert!(!event.operation.name().is_empty());
    for text in [event.requester.comm.to_string(), format!("{:?}", event.detail.file()), format!("{event:?}")] {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
});
