//! A recording: judged as far as it can be read, whatever is in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plumbline::judge_bytes(bytes.to_vec()));
