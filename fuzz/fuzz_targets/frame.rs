//! Frames and the messages put together from them: the same however the stream is cut (the first byte says how).
#![no_main]

use haul_wire::WireError;
use haul_wire::frame::{Assembler, Deframer, FrameKind, MAX_FRAME};
use libfuzzer_sys::fuzz_target;

/// Small enough for a fuzzer to reach.
const LIMIT: usize = 200_000;

fuzz_target!(|input: &[u8]| {
    let Some((cut, stream)) = input.split_first() else { return };
    let whole = messages(stream, stream.len().max(1));
    let pieces = messages(stream, usize::from(*cut) + 1);
    assert_eq!(whole, pieces);
});

fn messages(stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<WireError>) {
    let (mut deframer, mut assembler) = (Deframer::default(), Assembler::default());
    let mut found = Vec::new();
    for piece in stream.chunks(cut) {
        deframer.push(piece);
        loop {
            let message = match deframer.take() {
                Ok(None) => break,
                Ok(Some((kind, body))) => {
                    assert!(body.len() < MAX_FRAME);
                    if kind != FrameKind::Record {
                        continue;
                    }
                    assembler.push(&body, LIMIT)
                }
                Err(error) => Err(error),
            };
            match message {
                Ok(Some(message)) => found.push(message),
                Ok(None) => {}
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
