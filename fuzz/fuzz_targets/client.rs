//! A client and whatever a server may send it, after a good hello or none (the first byte says).
#![no_main]

use std::time::Duration;

use haul_wire::hello::{Hello, Mode, OURS};
use haul_wire::{Body, ClientSession, Event, Message, Now, RunId, Trust};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut client = ClientSession::new(Now(Duration::ZERO), Trust::Open);
    let mut now = Now(Duration::ZERO);
    if how & 1 == 1 {
        let hello = Hello::Control(Mode::Open).encode(OURS);
        client.receive(now, &hello).expect("a good hello is taken");
        let open = Message::Open { client_version: String::new(), host: String::new(), user: String::new() };
        client.send(now, &open).expect("open comes first");
    }
    for piece in bytes.chunks(usize::from(how >> 1) + 1) {
        now = now + Duration::from_millis(10);
        if client.receive(now, piece).is_err() || client.tick(now).is_err() {
            assert!(client.is_over());
            return;
        }
        while let Some(event) = client.event() {
            let Event::Message(message) = event else { continue };
            let next = match message {
                Message::Opened { .. } => {
                    Message::Prepare { run: RunId(1), flows: 1, lifetime_ms: 100, body: Body::none() }
                }
                Message::Ready { run } => Message::Start { run, at_ns: 0 },
                Message::Started { run } => Message::Collect { run },
                Message::Report { .. } => Message::Close,
                _ => continue,
            };
            // Refused only where the next message of the same read has moved the session on already.
            let _ = client.send(now, &next);
        }
    }
});
