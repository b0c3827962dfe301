//! A server and whatever may connect to it: any first bytes, and after a good hello any messages.
#![no_main]

use std::time::Duration;

use haul_wire::hello::{Hello, Mode, OURS};
use haul_wire::{Arrival, Body, Event, Incoming, Message, Now, Token, Trust};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut now = Now(Duration::ZERO);
    let mut incoming = Incoming::new(now, Trust::Open);
    let hello = Hello::Control(Mode::Open).encode(OURS);
    let stream = if how & 1 == 1 { [&hello[..], bytes].concat() } else { bytes.to_vec() };
    let (taken, Arrival::Control(mut server)) = incoming.receive(now, &stream) else { return };
    for piece in stream[taken..].chunks(usize::from(how >> 1) + 1) {
        now = now + Duration::from_millis(10);
        if server.receive(now, piece).is_err() || server.tick(now).is_err() {
            assert!(server.is_over());
            return;
        }
        while let Some(event) = server.event() {
            let Event::Message(message) = event else { continue };
            let answers = match message {
                Message::Open { .. } => vec![Message::Opened {
                    server_version: String::new(),
                    token: Token::from_random([0; 16]),
                    boot_id: None,
                    body: Body::none(),
                }],
                Message::Prepare { run, .. } => {
                    vec![Message::Prepared { run, body: Body::none() }, Message::Ready { run }]
                }
                Message::Start { run, .. } => vec![Message::Started { run }],
                Message::Collect { run } => vec![Message::Report { run, body: Body::none() }],
                Message::Settings { .. } | Message::VerifySettings | Message::RestoreSettings => {
                    vec![Message::SettingsApplied { body: Body::none() }]
                }
                Message::Fingerprint { .. } => vec![Message::FingerprintIs { body: Body::none() }],
                Message::Close => vec![Message::Closed { reason: None }],
                _ => vec![],
            };
            for answer in answers {
                // Refused only where the next message of the same read has moved the session on already.
                let _ = server.send(now, &answer);
            }
        }
    }
});
