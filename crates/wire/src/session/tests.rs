//! Both ends against each other, with a clock that is moved by hand.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::hello::{Token, Versions};
use crate::ladder::{
    COLLECT_DEADLINE, CONFIGURE_DEADLINE, GREETING_DEADLINE, IDLE_DEADLINE, OPENING_DEADLINE,
    PREPARE_DEADLINE, READY_DEADLINE, RUN_GRACE, START_DEADLINE,
};
use crate::message::{Body, FlowIndex};
use crate::secure::Key;

const LIFETIME: Duration = Duration::from_secs(11);
const RUN: RunId = RunId(1);

fn at(millis: u64) -> Now {
    Now(Duration::from_millis(millis))
}

fn key(seed: u8) -> Trust {
    Trust::Key(Key::from_random([seed; 32]))
}

fn take<R: Role>(session: &mut Session<R>) -> Vec<u8> {
    let bytes = session.output().to_vec();
    session.sent(bytes.len());
    bytes
}

fn messages<R: Role>(session: &mut Session<R>) -> Vec<Message> {
    std::iter::from_fn(|| session.event())
        .filter_map(|event| match event {
            Event::Message(message) => Some(message),
            Event::Established => None,
        })
        .collect()
}

fn admitted(now: Now, trust: Trust, hello: &[u8]) -> ServerSession {
    match Incoming::new(now, trust).receive(now, hello) {
        (HELLO_LEN, Arrival::Control(session)) => *session,
        _ => panic!("the hello was not admitted"),
    }
}

fn open() -> Message {
    Message::Open { client_version: "0.1.0".into(), host: "alpha".into(), user: "ada".into() }
}

fn opened() -> Message {
    let token = Token::from_random([9; 16]);
    Message::Opened { server_version: "0.1.0".into(), token, boot_id: None, body: Body::none() }
}

fn prepare(run: RunId) -> Message {
    let lifetime_ms = u64::try_from(LIFETIME.as_millis()).unwrap();
    Message::Prepare { run, flows: 2, lifetime_ms, body: Body::none() }
}

fn failed(run: Option<RunId>) -> Message {
    Message::Failed { call: "prepare".into(), run, reason: "no memory".into() }
}

/// Both ends of one connection, without a network between them.
struct Pair {
    now: Now,
    client: ClientSession,
    server: ServerSession,
}

impl Pair {
    /// Past the handshake.
    fn established(trust: &Trust) -> Self {
        let now = at(0);
        let mut client = ClientSession::new(now, trust.clone());
        let server = admitted(now, trust.clone(), &take(&mut client));
        let mut pair = Self { now, client, server };
        pair.exchange();
        assert_eq!(pair.client.event(), Some(Event::Established));
        assert_eq!(pair.server.event(), Some(Event::Established));
        pair
    }

    /// At the given rung of a session in which all goes well.
    fn at_phase(trust: &Trust, phase: Phase) -> Self {
        let mut pair = Self::established(trust);
        for (side, message) in ladder_to_idle(RUN) {
            if pair.client.phase() == phase {
                return pair;
            }
            pair.say(side, &message);
        }
        for message in [Message::RestoreSettings, Message::Fingerprint { peer: None }, Message::Close] {
            let mut pair = Self::established(trust);
            pair.say(Side::Client, &open());
            pair.say(Side::Server, &opened());
            pair.say(Side::Client, &message);
            if pair.client.phase() == phase {
                return pair;
            }
        }
        panic!("no way leads to {phase:?}");
    }

    fn say(&mut self, side: Side, message: &Message) {
        match side {
            Side::Client => self.client.send(self.now, message).unwrap(),
            Side::Server => self.server.send(self.now, message).unwrap(),
        }
        self.exchange();
        assert_eq!(self.client.phase(), self.server.phase(), "after {}", message.kind());
    }

    /// Delivers what both have said, until both are silent.
    fn exchange(&mut self) {
        loop {
            let (there, back) = (take(&mut self.client), take(&mut self.server));
            if there.is_empty() && back.is_empty() {
                return;
            }
            self.server.receive(self.now, &there).unwrap();
            self.client.receive(self.now, &back).unwrap();
        }
    }

    /// Lets time pass in steps of 100 ms, with both ends alive, until one gives up.
    fn wait_for_an_error(&mut self, most: Duration) -> Option<(Duration, Result<WireError, WireError>)> {
        let start = self.now;
        while start.until(self.now) < most {
            self.now = self.now + Duration::from_millis(100);
            let passed = start.until(self.now);
            if let Err(error) = self.server.tick(self.now) {
                return Some((passed, Err(error)));
            }
            if let Err(error) = self.client.tick(self.now) {
                return Some((passed, Ok(error)));
            }
            self.exchange();
        }
        None
    }
}

fn ladder_to_idle(run: RunId) -> Vec<(Side, Message)> {
    use Side::{Client, Server};
    let body = Body::none;
    vec![
        (Client, open()),
        (Server, opened()),
        (Client, prepare(run)),
        (Server, Message::Prepared { run, body: body() }),
        (Server, Message::Ready { run }),
        (Client, Message::Start { run, at_ns: 0 }),
        (Server, Message::Started { run }),
        (Server, Message::Interval { run, body: body() }),
        (Client, Message::Collect { run }),
        (Server, Message::Report { run, body: body() }),
    ]
}

#[test]
fn a_session_climbs_the_ladder_keyed_and_open() {
    for trust in [Trust::Open, key(1)] {
        let mut pair = Pair::established(&trust);
        let mut said = ladder_to_idle(RUN);
        said.extend(ladder_to_idle(RunId(2)).into_iter().skip(2));
        said.push((Side::Client, Message::Outcome { body: Body::none() }));
        said.push((
            Side::Client,
            Message::Settings { apply: vec![], allow_side_effects: false, allow_global: false },
        ));
        said.push((Side::Server, Message::SettingsApplied { body: Body::none() }));
        said.push((Side::Client, Message::Fingerprint { peer: None }));
        said.push((Side::Server, Message::FingerprintIs { body: Body::none() }));
        said.push((Side::Client, Message::Ping { id: 5 }));
        said.push((Side::Server, Message::Pong { id: 5, server_ns: 6 }));
        said.push((Side::Client, Message::Close));
        said.push((Side::Server, Message::Closed { reason: None }));
        for (side, message) in &said {
            pair.say(*side, message);
        }
        assert!(pair.client.is_over() && pair.server.is_over());
        assert_eq!(pair.client.deadline(), Now::NEVER);
        let (from_client, from_server): (Vec<_>, Vec<_>) =
            said.into_iter().partition(|(side, _)| *side == Side::Client);
        assert_eq!(messages(&mut pair.server), from_client.into_iter().map(|(_, m)| m).collect::<Vec<_>>());
        assert_eq!(messages(&mut pair.client), from_server.into_iter().map(|(_, m)| m).collect::<Vec<_>>());
    }
}

#[test]
fn an_open_session_begins_with_these_bytes() {
    let mut client = ClientSession::new(at(0), Trust::Open);
    let mut hello = *b"\x89haul\r\n\x1a\0\x01\0\x01\x01\x02\0\0........................";
    hello[16..].fill(0);
    assert_eq!(take(&mut client), hello);
    let mut server = admitted(at(0), Trust::Open, &hello);
    assert_eq!(take(&mut server), hello);
    client.receive(at(0), &hello).unwrap();
    client.send(at(0), &open()).unwrap();
    let bytes = b"\0\0\0\x46\x02\0{\"kind\":\"open\",\"client_version\":\"0.1.0\",\"host\":\"alpha\",\"user\":\"ada\"}";
    assert_eq!(take(&mut client), bytes);
    server.receive(at(0), bytes).unwrap();
    assert_eq!(messages(&mut server), [open()]);
}

#[test]
fn a_keyed_session_shows_nothing_of_what_is_said() {
    let mut pair = Pair::established(&key(1));
    pair.client.send(pair.now, &open()).unwrap();
    let bytes = take(&mut pair.client);
    assert!(!bytes.windows(5).any(|window| window == b"alpha"));
}

#[test]
fn a_wrong_key_is_told_at_both_ends() {
    let mut client = ClientSession::new(at(0), key(1));
    let mut server = admitted(at(0), key(2), &take(&mut client));
    client.receive(at(0), &take(&mut server)).unwrap();
    assert_eq!(server.receive(at(0), &take(&mut client)), Err(WireError::WrongKey));
    assert_eq!(client.receive(at(0), &take(&mut server)), Err(WireError::WrongKey));
    assert!(client.is_over() && server.is_over());
}

#[test]
fn an_open_end_and_a_keyed_one_tell_each_other() {
    for (client, server, expected) in
        [(Trust::Open, key(1), WireError::ServerIsKeyed), (key(1), Trust::Open, WireError::ServerIsOpen)]
    {
        let mut client = ClientSession::new(at(0), client);
        let mut incoming = Incoming::new(at(0), server);
        let (_, arrival) = incoming.receive(at(0), &take(&mut client));
        assert!(matches!(arrival, Arrival::Refused(error) if error == expected));
        assert_eq!(client.receive(at(0), incoming.output()), Err(expected));
    }
}

#[test]
fn a_version_that_does_not_meet_ours_is_named_at_both_ends() {
    let theirs = Versions { spoken: 3, oldest: 2 };
    let hello = Hello::Control(Mode::Open).encode(theirs);
    let expected = WireError::Version { ours: OURS, theirs };

    let mut incoming = Incoming::new(at(0), Trust::Open);
    let (_, arrival) = incoming.receive(at(0), &hello);
    assert!(matches!(arrival, Arrival::Refused(error) if error == expected));
    assert_eq!(incoming.output(), Hello::Control(Mode::Open).encode(OURS));

    assert_eq!(ClientSession::new(at(0), Trust::Open).receive(at(0), &hello), Err(expected));
}

#[test]
fn a_newer_release_that_understands_ours_is_welcome() {
    let hello = Hello::Control(Mode::Open).encode(Versions { spoken: 3, oldest: 1 });
    let mut client = ClientSession::new(at(0), Trust::Open);
    client.receive(at(0), &hello).unwrap();
    assert_eq!(client.event(), Some(Event::Established));
    admitted(at(0), Trust::Open, &hello);
}

#[test]
fn a_client_names_what_answers_in_place_of_haul_within_two_seconds() {
    for (answer, hangs_up, found) in [
        (&b""[..], false, Foreign::Silence),
        (b"", true, Foreign::Hangup),
        (b"\x09", false, Foreign::Iperf3Server),
        (b"\xff", true, Foreign::Iperf3Busy),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", true, Foreign::Http),
        (b"SSH-2.0-x\r\n", false, Foreign::Ssh),
        (b"who's there", false, Foreign::Text("who's there".into())),
        (b"\x89haul\r\n\x1a\0\x01", true, Foreign::CutShort { bytes: 10 }),
    ] {
        let mut client = ClientSession::new(at(0), key(1));
        assert_eq!(client.deadline(), at(0) + GREETING_DEADLINE);
        let error = client
            .receive(at(20), answer)
            .and_then(|()| if hangs_up { client.receive_end() } else { Ok(()) })
            .and_then(|()| client.tick(at(1_499)))
            .and_then(|()| client.tick(at(1_500)))
            .unwrap_err();
        assert_eq!(error, WireError::NotHaul { found });
    }
}

#[test]
fn a_server_is_rid_of_strangers_within_two_seconds() {
    for (bytes, found) in [
        (&b""[..], Foreign::Silence),
        (b"GET / HTTP/1.0\r\n\r\n", Foreign::Http),
        (b"\x16\x03\x01\x00\xc4", Foreign::Tls),
        (b"\x89haul\r\n", Foreign::CutShort { bytes: 7 }),
        (b"\x01\x02\x03", Foreign::Bytes(vec![1, 2, 3])),
    ] {
        let mut incoming = Incoming::new(at(500), key(1));
        let error = match incoming.receive(at(510), bytes) {
            (_, Arrival::Foreign(found)) => WireError::NotHaul { found },
            (_, Arrival::NeedMore) => {
                assert_eq!(incoming.tick(at(2_499)), Ok(()));
                assert_eq!(incoming.deadline(), at(2_500));
                incoming.tick(at(2_500)).unwrap_err()
            }
            _ => panic!("admitted {bytes:02x?}"),
        };
        assert_eq!(error, WireError::NotHaul { found });
        assert_eq!(incoming.output(), b"", "strangers get no answer");
    }
}

#[test]
fn a_client_that_stops_in_the_handshake_is_dropped_two_seconds_after_it_came() {
    let mut client = ClientSession::new(at(0), key(1));
    let mut incoming = Incoming::new(at(0), key(1));
    let (_, Arrival::Control(mut server)) = incoming.receive(at(1_900), &take(&mut client)) else {
        panic!("not admitted")
    };
    assert_eq!(server.tick(at(1_999)), Ok(()));
    assert_eq!(
        server.tick(at(2_000)),
        Err(WireError::Deadline { phase: Phase::Securing, after: HANDSHAKE_DEADLINE })
    );
}

#[test]
fn a_data_connection_is_known_by_its_hello_and_the_payload_is_left_alone() {
    let hello = DataHello { token: Token::from_random([3; 16]), run: RunId(4), flow: FlowIndex(5) };
    let stream = [&hello.encode()[..], b"\x89haul payload"].concat();
    for cut in 1..stream.len() {
        for trust in [Trust::Open, key(1)] {
            let mut incoming = Incoming::new(at(0), trust);
            let mut taken = 0;
            let found = stream.chunks(cut).find_map(|piece| {
                let (count, arrival) = incoming.receive(at(0), piece);
                taken += count;
                match arrival {
                    Arrival::NeedMore => None,
                    Arrival::Data(data) => Some(data),
                    _ => panic!("not a data connection"),
                }
            });
            assert_eq!((found, taken), (Some(hello), HELLO_LEN), "reads of {cut} bytes");
            assert_eq!(incoming.output(), b"");
        }
    }
}

#[test]
fn each_phase_has_its_deadline_at_both_ends() {
    let table = [
        (Phase::Opening, Some(OPENING_DEADLINE)),
        (Phase::Admitting, Some(OPENING_DEADLINE)),
        (Phase::Idle, None),
        (Phase::Configuring, Some(CONFIGURE_DEADLINE)),
        (Phase::Fingerprinting, Some(CONFIGURE_DEADLINE)),
        (Phase::Preparing, Some(PREPARE_DEADLINE)),
        (Phase::Gathering, Some(READY_DEADLINE)),
        (Phase::Poised, Some(START_DEADLINE)),
        (Phase::Starting, Some(START_DEADLINE)),
        (Phase::Running, Some(LIFETIME + RUN_GRACE)),
        (Phase::Collecting, Some(COLLECT_DEADLINE)),
        (Phase::Closing, Some(CONFIGURE_DEADLINE)),
    ];
    for (phase, after) in table {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        // The server's idle deadline is the client's to keep, by a ping.
        let server_after = after.unwrap_or(IDLE_DEADLINE);
        let expected = WireError::Deadline { phase, after: server_after };
        assert_eq!(
            pair.wait_for_an_error(Duration::from_secs(90)),
            Some((server_after, Err(expected.clone())))
        );
        let at_client = pair.client.tick(pair.now);
        assert_eq!(at_client, if after.is_some() { Err(expected) } else { Ok(()) }, "{phase:?}");
    }
}

#[test]
fn a_ping_keeps_an_idle_session() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Idle);
    for id in 0..5 {
        assert_eq!(pair.wait_for_an_error(Duration::from_secs(40)), None);
        pair.say(Side::Client, &Message::Ping { id });
    }
}

#[test]
fn a_silent_end_says_every_half_second_that_it_is_alive() {
    let mut pair = Pair::at_phase(&key(1), Phase::Running);
    let mut beats = 0;
    for millis in (10..=3_000).step_by(10) {
        pair.client.tick(at(millis)).unwrap();
        beats += usize::from(!take(&mut pair.client).is_empty());
    }
    assert_eq!(beats, 6);
}

#[test]
fn heartbeats_do_not_pile_up_behind_output_that_does_not_get_through() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Running);
    pair.server.send(pair.now, &Message::Interval { run: RUN, body: Body::none() }).unwrap();
    let waiting = pair.server.output().len();
    for millis in (100..5_000).step_by(100) {
        pair.server.tick(at(millis)).unwrap();
        assert!(pair.server.deadline() > at(millis), "the caller would spin");
    }
    assert_eq!(pair.server.output().len(), waiting);
}

#[test]
fn a_peer_is_lost_after_eight_seconds_of_silence_in_any_phase() {
    for phase in [Phase::Idle, Phase::Gathering, Phase::Running, Phase::Collecting] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        pair.server.receive(at(700), b"\0").unwrap();
        assert_eq!(pair.server.tick(at(8_699)), Ok(()));
        let lost = WireError::PeerSilent { after: SILENCE_DEADLINE };
        assert_eq!(pair.server.tick(at(8_700)), Err(lost.clone()));
        assert_eq!(pair.server.receive(at(8_800), b"late"), Err(lost), "an error is final");
    }
}

#[test]
fn an_end_that_was_stopped_itself_hears_its_peer_before_it_judges() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Running);
    pair.server.tick(at(500)).unwrap();
    let beat = take(&mut pair.server);
    pair.client.receive(at(8_000), &beat).unwrap();
    assert_eq!(pair.client.tick(at(8_000)), Ok(()));
}

#[test]
fn the_largest_legitimate_report_fits_in_both_modes() {
    // 128 flows of 600 intervals, each as long as its numbers can make it.
    let interval = serde_json::json!({
        "bytes": u64::MAX, "start_ns": u64::MAX, "end_ns": u64::MAX, "retransmits": u64::MAX,
        "rtt_us": u32::MAX, "rttvar_us": u32::MAX, "cwnd_bytes": u32::MAX, "calls": u64::MAX,
    });
    let report = Body::of(&vec![vec![interval; 600]; 128]).unwrap();
    for trust in [Trust::Open, key(1)] {
        let mut pair = Pair::at_phase(&trust, Phase::Collecting);
        messages(&mut pair.client);
        let message = Message::Report { run: RUN, body: report.clone() };
        pair.say(Side::Server, &message);
        assert!(messages(&mut pair.client) == [message], "the report came back different");
    }
}

#[test]
fn a_report_that_keeps_coming_may_take_longer_than_the_deadline() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Collecting);
    let report = Message::Report { run: RUN, body: Body::of(&"x".repeat(4 * CHUNK)).unwrap() };
    pair.server.send(pair.now, &report).unwrap();
    let bytes = take(&mut pair.server);
    let mut now = pair.now;
    for piece in bytes.chunks(CHUNK) {
        now = now + Duration::from_millis(4_900);
        pair.client.receive(now, piece).unwrap();
        pair.client.tick(now).unwrap();
    }
    assert_eq!(messages(&mut pair.client).last(), Some(&report));
}

#[test]
fn a_message_larger_than_the_bound_is_refused_where_it_is_made() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Collecting);
    let body = Body::of(&"x".repeat(MAX_MESSAGE)).unwrap();
    let error = pair.server.send(pair.now, &Message::Report { run: RUN, body: body.clone() }).unwrap_err();
    assert!(matches!(error, WireError::Oversize { what: "a message", .. }), "{error}");
    pair.say(Side::Server, &failed(Some(RUN)));
    assert_eq!(pair.server.phase(), Phase::Idle, "the session goes on");
    let request = Message::Prepare { run: RunId(2), flows: 1, lifetime_ms: 1, body };
    let error = pair.client.send(pair.now, &request).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("a message of {} bytes: the limit is 1048576", request.to_json().unwrap().len())
    );
}

#[test]
fn output_that_nobody_reads_is_bounded() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Running);
    let interval = Message::Interval { run: RUN, body: Body::of(&"x".repeat(4 << 20)).unwrap() };
    let sent = (0..100).take_while(|_| pair.server.send(pair.now, &interval).is_ok()).count();
    assert!((16..=33).contains(&sent), "{sent} times 4 MiB were kept");
}

#[test]
fn a_client_that_was_not_let_in_gets_no_memory() {
    let mut pair = Pair::established(&Trust::Open);
    let long = Message::Open { client_version: String::new(), host: "x".repeat(CHUNK), user: String::new() };
    pair.client.send(pair.now, &long).unwrap();
    let error = pair.server.receive(pair.now, &take(&mut pair.client)).unwrap_err();
    assert!(matches!(error, WireError::Oversize { .. }), "{error}");
}

#[test]
fn a_refused_client_is_told_who_holds_the_place_and_since_when() {
    let reason = Refusal::Busy { holder: "bob@beta".into(), since_s: 90, limit: 1 };
    let expected = WireError::Refused { reason: reason.clone(), text: "busy [2J with bob@beta".into() };
    for trust in [Trust::Open, key(1)] {
        let mut pair = Pair::at_phase(&trust, Phase::Admitting);
        pair.server.refuse(pair.now, reason.clone(), "busy\x1b[2J with bob@beta").unwrap();
        assert!(pair.server.is_over());
        assert_eq!(pair.client.receive(pair.now, &take(&mut pair.server)), Err(expected.clone()));
    }
}

#[test]
fn a_server_with_no_place_left_can_refuse_before_the_handshake() {
    for trust in [Trust::Open, key(1)] {
        let mut client = ClientSession::new(at(0), trust.clone());
        let mut server = admitted(at(0), trust, &take(&mut client));
        server.refuse(at(0), Refusal::Limit, "64 connections are open").unwrap();
        let error = client.receive(at(0), &take(&mut server)).unwrap_err();
        assert_eq!(
            error,
            WireError::Refused { reason: Refusal::Limit, text: "64 connections are open".into() }
        );
    }
}

#[test]
fn a_refusal_in_plain_counts_for_nothing_once_there_is_something_to_lose() {
    let text = "go away".to_owned();
    for (trust, phase) in
        [(key(1), Phase::Admitting), (key(1), Phase::Running), (Trust::Open, Phase::Running)]
    {
        let mut pair = Pair::at_phase(&trust, phase);
        let mut forged = Output::default();
        let refused = Message::Refused { reason: Refusal::Limit, text: text.clone() };
        refuse_in_plain(&refused, &mut forged).unwrap();
        let error = pair.client.receive(pair.now, forged.left()).unwrap_err();
        assert!(matches!(error, WireError::Malformed { .. }), "{error}");
    }
}

#[test]
fn a_refused_call_leaves_the_session_usable() {
    let refused =
        Message::Refused { reason: Refusal::NotAllowed, text: "start it with --allow-settings".into() };
    for (call, ends_run) in [(Message::RestoreSettings, false), (prepare(RUN), true)] {
        let mut pair = Pair::at_phase(&Trust::Open, Phase::Idle);
        messages(&mut pair.client);
        pair.say(Side::Client, &call);
        pair.say(Side::Server, &refused);
        assert_eq!(messages(&mut pair.client).as_slice(), std::slice::from_ref(&refused));
        assert_eq!((pair.client.phase(), pair.client.run()), (Phase::Idle, None));
        pair.say(Side::Client, &prepare(RunId(if ends_run { 2 } else { 1 })));
    }
}

#[test]
fn a_stop_before_the_start_ends_the_run_whatever_crosses_it() {
    let run = RUN;
    for (phase, crossing) in [
        (Phase::Preparing, Message::Prepared { run, body: Body::none() }),
        (Phase::Gathering, Message::Ready { run }),
        (Phase::Gathering, failed(Some(run))),
        (Phase::Poised, failed(Some(run))),
    ] {
        let mut pair = Pair::at_phase(&key(1), phase);
        messages(&mut pair.client);
        pair.client.send(pair.now, &Message::Stop { run }).unwrap();
        pair.server.send(pair.now, &crossing).unwrap();
        pair.exchange();
        assert_eq!(
            (pair.client.phase(), pair.server.phase()),
            (Phase::Idle, Phase::Idle),
            "{}",
            crossing.kind()
        );
        assert_eq!(messages(&mut pair.client), [], "a run that is over is not heard of again");
        pair.say(Side::Client, &prepare(RunId(2)));
    }
}

#[test]
fn a_stop_after_the_start_leaves_a_run_to_be_collected() {
    for phase in [Phase::Starting, Phase::Running] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        pair.say(Side::Client, &Message::Stop { run: RUN });
        if phase == Phase::Starting {
            pair.say(Side::Server, &Message::Started { run: RUN });
        }
        pair.say(Side::Client, &Message::Collect { run: RUN });
        pair.say(Side::Server, &Message::Report { run: RUN, body: Body::none() });
        assert_eq!(pair.client.phase(), Phase::Idle);
    }
}

#[test]
fn a_failure_of_the_server_may_cross_anything_the_client_says_about_the_run() {
    for (phase, crossing) in [
        (Phase::Poised, Message::Start { run: RUN, at_ns: 0 }),
        (Phase::Starting, Message::Stop { run: RUN }),
        (Phase::Running, Message::Stop { run: RUN }),
        (Phase::Running, Message::Collect { run: RUN }),
    ] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        messages(&mut pair.client);
        messages(&mut pair.server);
        pair.server.send(pair.now, &failed(Some(RUN))).unwrap();
        pair.client.send(pair.now, &crossing).unwrap();
        pair.exchange();
        assert_eq!(
            (pair.client.phase(), pair.server.phase()),
            (Phase::Idle, Phase::Idle),
            "{}",
            crossing.kind()
        );
        assert_eq!(messages(&mut pair.client), [failed(Some(RUN))]);
        assert_eq!(messages(&mut pair.server), []);
    }
}

#[test]
fn the_last_interval_may_cross_the_collect() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Running);
    let interval = Message::Interval { run: RUN, body: Body::none() };
    pair.server.send(pair.now, &interval).unwrap();
    pair.client.send(pair.now, &Message::Collect { run: RUN }).unwrap();
    pair.exchange();
    assert_eq!(messages(&mut pair.client).last(), Some(&interval));
    pair.say(Side::Server, &interval);
    assert_eq!(pair.client.phase(), Phase::Collecting);
}

#[test]
fn a_close_ends_any_phase_whatever_crosses_it() {
    for phase in [Phase::Opening, Phase::Idle, Phase::Gathering, Phase::Running, Phase::Collecting] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        messages(&mut pair.client);
        messages(&mut pair.server);
        let crossing = match phase {
            Phase::Running => Message::Interval { run: RUN, body: Body::none() },
            Phase::Collecting => Message::Report { run: RUN, body: Body::none() },
            _ => Message::Alive,
        };
        pair.server.send(pair.now, &crossing).unwrap();
        pair.client.send(pair.now, &Message::Close).unwrap();
        pair.exchange();
        assert_eq!(messages(&mut pair.server), [Message::Close]);
        assert_eq!(messages(&mut pair.client), []);
        assert_eq!(pair.server.run(), None);
        pair.say(Side::Server, &Message::Closed { reason: None });
        assert_eq!(pair.client.phase(), Phase::Ended);
    }
}

#[test]
fn a_server_that_goes_down_says_so_in_any_phase() {
    let closed = Message::Closed { reason: Some("terminated".into()) };
    for phase in [Phase::Opening, Phase::Idle, Phase::Poised, Phase::Running, Phase::Collecting] {
        let mut pair = Pair::at_phase(&key(1), phase);
        pair.server.send(pair.now, &closed).unwrap();
        pair.client.send(pair.now, &Message::Alive).unwrap();
        pair.exchange();
        assert_eq!(messages(&mut pair.client).last(), Some(&closed));
        assert_eq!(pair.client.receive_end(), Ok(()));
        assert!(pair.client.is_over() && pair.server.is_over());
    }
}

#[test]
fn the_end_of_the_stream_is_success_after_close_and_an_error_before() {
    for phase in [Phase::Opening, Phase::Idle, Phase::Running, Phase::Collecting] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        assert_eq!(pair.client.receive_end(), Err(WireError::PeerClosed { phase }));
        assert_eq!(pair.server.receive_end(), Err(WireError::PeerClosed { phase }));
    }
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Closing);
    assert_eq!(pair.client.receive_end(), Ok(()));
    assert!(pair.client.is_over());
    assert_eq!(pair.server.receive_end(), Ok(()));
    assert_eq!(
        pair.server.tick(at(9_000)),
        Ok(()),
        "settings may take longer to put back than a peer may be silent"
    );
    assert_eq!(pair.server.send(at(9_000), &Message::Closed { reason: None }), Ok(()));
}

#[test]
fn a_message_out_of_order_is_an_error_and_not_obeyed() {
    let run = RUN;
    let body = Body::none;
    for (phase, at_server, message) in [
        (Phase::Opening, true, prepare(run)),
        (Phase::Opening, true, Message::Ping { id: 1 }),
        (Phase::Admitting, true, open()),
        (Phase::Idle, true, open()),
        (Phase::Idle, true, Message::Start { run, at_ns: 0 }),
        (Phase::Idle, true, opened()),
        (Phase::Preparing, true, prepare(RunId(2))),
        (Phase::Running, true, Message::Start { run, at_ns: 0 }),
        (Phase::Running, true, Message::Collect { run: RunId(2) }),
        (Phase::Running, true, Message::RestoreSettings),
        (Phase::Closing, true, Message::Ping { id: 1 }),
        (Phase::Opening, false, opened()),
        (Phase::Idle, false, Message::Report { run: RunId(9), body: body() }),
        (Phase::Preparing, false, Message::Ready { run }),
        (Phase::Running, false, Message::Report { run, body: body() }),
        (Phase::Running, false, Message::Interval { run: RunId(2), body: body() }),
        (Phase::Running, false, open()),
    ] {
        let mut pair = Pair::at_phase(&Trust::Open, phase);
        let (mut frames, json) = (Vec::new(), message.to_json().unwrap());
        for record in frame::records(json.as_bytes()) {
            frame::encode(FrameKind::Record, &record, &mut frames).unwrap();
        }
        let expected = Err(WireError::OutOfOrder { got: message.kind().to_owned(), phase });
        let got = if at_server {
            pair.server.receive(pair.now, &frames)
        } else {
            pair.client.receive(pair.now, &frames)
        };
        assert_eq!(got, expected, "{phase:?}");
    }
}

#[test]
fn saying_something_out_of_order_is_an_error_and_changes_nothing() {
    let mut pair = Pair::at_phase(&Trust::Open, Phase::Idle);
    for message in [open(), Message::Collect { run: RUN }, opened(), Message::Closed { reason: None }] {
        assert!(matches!(pair.client.send(pair.now, &message), Err(WireError::OutOfOrder { .. })));
    }
    assert_eq!(pair.client.output(), b"");
    pair.say(Side::Client, &prepare(RUN));

    let mut pair = Pair::established(&Trust::Open);
    pair.say(Side::Client, &open());
    pair.say(Side::Server, &opened());
    pair.say(Side::Client, &prepare(RunId(5)));
    pair.say(Side::Server, &failed(Some(RunId(5))));
    assert!(pair.client.send(pair.now, &prepare(RunId(5))).is_err(), "run numbers grow");
}

#[test]
fn a_session_can_move_to_another_thread() {
    fn movable<T: Send>() {}
    movable::<ClientSession>();
    movable::<ServerSession>();
    movable::<Incoming>();
}

/// What a session makes of these bytes, however they are cut.
fn outcome<R: Role>(
    mut session: Session<R>,
    bytes: &[u8],
    cut: usize,
) -> (Vec<Event>, Vec<u8>, Option<WireError>) {
    let error = bytes.chunks(cut).find_map(|piece| session.receive(at(1), piece).err());
    (std::iter::from_fn(|| session.event()).collect(), take(&mut session), error)
}

fn arrival(bytes: &[u8], cut: usize) -> (usize, String) {
    let mut incoming = Incoming::new(at(0), Trust::Open);
    let mut taken = 0;
    for piece in bytes.chunks(cut) {
        let (count, arrival) = incoming.receive(at(0), piece);
        taken += count;
        let found = match arrival {
            Arrival::NeedMore => continue,
            Arrival::Control(_) => "control".to_owned(),
            Arrival::Data(data) => format!("{data:?}"),
            Arrival::Foreign(found) => found.to_string(),
            Arrival::Refused(error) => error.to_string(),
        };
        return (taken, found);
    }
    (taken, "more".to_owned())
}

/// The bytes that one end of an open session sends.
fn stream(from: Side) -> Vec<u8> {
    let mut pair = Pair::established(&Trust::Open);
    let mut bytes = Vec::new();
    for (side, message) in ladder_to_idle(RUN) {
        if side == from {
            for record in frame::records(message.to_json().unwrap().as_bytes()) {
                frame::encode(FrameKind::Record, &record, &mut bytes).unwrap();
            }
        }
        pair.say(side, &message);
    }
    bytes
}

proptest! {
    #![proptest_config(crate::seeded())]

    #[test]
    fn what_a_new_connection_is_does_not_depend_on_how_its_bytes_are_cut(
        good in prop::sample::select(vec![0_usize, 8, 12, 14, 40]),
        rest in prop::collection::vec(any::<u8>(), 0..60),
        cut in 1_usize..50,
    ) {
        let hello = Hello::Control(Mode::Open).encode(OURS);
        let bytes = [&hello[..good], &rest].concat();
        prop_assert_eq!(arrival(&bytes, bytes.len().max(1)), arrival(&bytes, cut));
    }

    #[test]
    fn an_open_server_makes_the_same_of_any_bytes_however_they_are_cut(
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in 1_usize..200,
    ) {
        let mut bytes = stream(Side::Client);
        for (index, byte) in noise {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let server = || {
            let mut pair = Pair::established(&Trust::Open);
            pair.say(Side::Client, &open());
            pair.say(Side::Server, &opened());
            pair.server
        };
        prop_assert_eq!(outcome(server(), &bytes, bytes.len()), outcome(server(), &bytes, cut));
    }

    #[test]
    fn an_open_client_makes_the_same_of_any_bytes_however_they_are_cut(
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in 1_usize..200,
    ) {
        let mut bytes = [&Hello::Control(Mode::Open).encode(OURS)[..], &stream(Side::Server)].concat();
        for (index, byte) in noise {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let client = || ClientSession::new(at(0), Trust::Open);
        prop_assert_eq!(outcome(client(), &bytes, bytes.len()), outcome(client(), &bytes, cut));
    }

    #[test]
    fn one_altered_bit_breaks_a_keyed_session(at_bit in any::<prop::sample::Index>()) {
        let mut pair = Pair::at_phase(&key(1), Phase::Idle);
        pair.client.send(pair.now, &prepare(RUN)).unwrap();
        let mut bytes = take(&mut pair.client);
        let bit = at_bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A longer length waits for bytes that never come; everything else is noticed at once.
        let _ = pair.server.receive(pair.now, &bytes);
        prop_assert!(pair.server.event().is_none_or(|event| event == Event::Message(open())));
        prop_assert_eq!(pair.server.phase(), Phase::Idle);
    }

    #[test]
    fn no_order_of_messages_makes_either_end_panic_or_leave_the_ladder(
        picks in prop::collection::vec((any::<bool>(), 0_usize..13, 1_u32..3), 0..60),
    ) {
        let mut pair = Pair::at_phase(&Trust::Open, Phase::Idle);
        for (crossing, pick, number) in picks {
            let run = RunId(number);
            let (side, message) = match pick {
                10 => (Side::Client, Message::Stop { run }),
                11 => (Side::Server, failed(Some(run))),
                12 => (Side::Client, Message::RestoreSettings),
                _ => ladder_to_idle(run).swap_remove(pick),
            };
            // Two ends that keep to the ladder never find each other out of order, whatever crosses.
            let _ = match side {
                Side::Client => pair.client.send(pair.now, &message),
                Side::Server => pair.server.send(pair.now, &message),
            };
            if !crossing {
                pair.exchange();
                prop_assert_eq!(pair.client.phase(), pair.server.phase());
            }
        }
    }
}
