//! What the two ends say to each other: one JSON object per message, told apart by its `kind`.
//!
//! Bodies that belong to a workload are opaque here ([`Body`]): a new workload changes neither the messages nor the
//! ladder. A field this version does not know is ignored, a kind it does not know survives as [`Message::Unknown`], and
//! a required field that is absent is an error, never a guess: a number that one end made up has no place in a
//! measurement.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{WireError, printable};
use crate::hello::Token;
use crate::ladder::Side;

/// The number of a run within a session. Numbers only grow, so that a message about a run that is over is known as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub u32);

/// The position of a flow within its run, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowIndex(pub u32);

/// A JSON value that is carried and not looked into.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Body(Box<RawValue>);

impl Body {
    /// The value as a body.
    pub fn of<T: Serialize>(value: &T) -> Result<Self, WireError> {
        serde_json::value::to_raw_value(value)
            .map(Self)
            .map_err(|e| WireError::malformed(format!("a body that cannot be written as JSON: {e}")))
    }

    /// The value in the body.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        serde_json::from_str(self.0.get()).map_err(|e| WireError::malformed(format!("a message body: {e}")))
    }

    /// The JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        self.0.get()
    }

    /// The body of a message that has nothing to say: `null`.
    #[must_use]
    pub fn none() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

/// Why a server says no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Refusal {
    /// All places are taken.
    Busy {
        /// Who holds the place, as that client named itself.
        holder: String,
        /// For how many seconds.
        since_s: u64,
        /// How many sessions the server serves at once.
        limit: u32,
    },
    /// The client's key is not the server's.
    WrongKey,
    /// The server was not started with the option that allows this.
    NotAllowed,
    /// More time, flows or rate than the server gives.
    Limit,
    /// A reason that a newer server knows.
    #[serde(other)]
    Unknown,
}

/// Declares the messages once: who sends it, its `kind` on the wire, its fields.
macro_rules! messages {
    ($($(#[$doc:meta])* $from:ident $kind:literal $name:ident
       $({ $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })?;)*) => {
        /// A message of the control connection.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $type),* })?,)*
            /// A kind this version does not know, kept as it came.
            Unknown {
                /// The kind.
                kind: String,
                /// The whole message as JSON.
                json: String,
            },
        }

        impl Message {
            /// Every kind this version knows.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// The kind as it is written on the wire.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$name { .. } => $kind,)*
                    Self::Unknown { kind, .. } => kind,
                }
            }

            /// Whether this end may send a message of this kind.
            #[must_use]
            pub fn may_come_from(&self, side: Side) -> bool {
                match self {
                    $(Self::$name { .. } => Sender::$from.includes(side),)*
                    Self::Unknown { .. } => true,
                }
            }

            /// The message as JSON text.
            pub fn to_json(&self) -> Result<String, WireError> {
                match self {
                    $(Self::$name $({ $($field),* })? => {
                        #[derive(Serialize)]
                        struct Fields<'a> { kind: &'a str, $($($field: &'a $type,)*)? }
                        write_json(&Fields { kind: $kind, $($($field,)*)? })
                    })*
                    Self::Unknown { json, .. } => Ok(json.clone()),
                }
            }

            /// The message in the JSON text.
            pub fn from_json(text: &str) -> Result<Self, WireError> {
                let head: Head<'_> = read_json("a message", text)?;
                match &*head.kind {
                    $($kind => {
                        #[derive(Deserialize)]
                        struct Fields { $($($field: $type,)*)? }
                        let Fields { $($($field,)*)? } = read_json($kind, text)?;
                        Ok(Self::$name $({ $($field),* })?)
                    })*
                    kind => Ok(Self::Unknown { kind: printable(kind), json: text.to_owned() }),
                }
            }
        }
    };
}

messages! {
    /// Asks to be let in.
    Client "open" Open {
        /// The client's release, for the server's log and for the record.
        client_version: String,
        /// The name of the client's host.
        host: String,
        /// Who runs the client.
        user: String,
    };
    /// Asks for the server's clock.
    Client "ping" Ping {
        /// Comes back in the answer.
        id: u64,
    };
    /// Asks for settings of the server's host. The list is the whole wish: what was set earlier and is not on it returns
    /// to what it was.
    Client "settings" Settings {
        /// Each setting as it is written on the command line.
        apply: Vec<String>,
        /// Whether settings that change along are accepted.
        allow_side_effects: bool,
        /// Whether the whole host's may be changed from a network namespace of the server's own.
        allow_global: bool,
    };
    /// Asks whether the settings are still in force, and were all the time.
    Client "verify_settings" VerifySettings;
    /// Asks for all settings to be put back.
    Client "restore_settings" RestoreSettings;
    /// Asks what the server's host is like.
    Client "fingerprint" Fingerprint {
        /// The address whose route is meant; `None` stands for the client's end of the control connection.
        peer: Option<String>,
    };
    /// Asks for a run to be set up.
    Client "prepare" Prepare {
        /// The run's number, larger than any before.
        run: RunId,
        /// How many data connections the client will open.
        flows: u32,
        /// How long the run takes from its start, at most, in milliseconds: warm-up and window.
        lifetime_ms: u64,
        /// The workload's specification.
        body: Body,
    };
    /// Starts the flows of a run that is ready.
    Client "start" Start {
        /// The run.
        run: RunId,
        /// When to start, on the server's monotonic clock; 0 is at once.
        at_ns: u64,
    };
    /// Ends a run before its time. One that has started is still collected, one that has not is over.
    Client "stop" Stop {
        /// The run.
        run: RunId,
    };
    /// Asks for the server's half of the result.
    Client "collect" Collect {
        /// The run.
        run: RunId,
    };
    /// Tells the server of a run that is over what the client saw of it, so that its log has both halves.
    Client "outcome" Outcome {
        /// The client's half, in short.
        body: Body,
    };
    /// Takes leave; the server puts its settings back before it answers.
    Client "close" Close;
    /// Lets the client in.
    Server "opened" Opened {
        /// The server's release.
        server_version: String,
        /// What every data connection of this session shows.
        token: Token,
        /// The boot of the server's kernel: the same one at both ends means that both share a host.
        boot_id: Option<String>,
        /// What else the server says of itself.
        body: Body,
    };
    /// Says no, to the client as a whole or to what it asked for last.
    Server "refused" Refused {
        /// Why, for programs.
        reason: Refusal,
        /// Why, for people.
        text: String,
    };
    /// The server's clock.
    Server "pong" Pong {
        /// The number in the question.
        id: u64,
        /// The server's monotonic clock.
        server_ns: u64,
    };
    /// The settings are as asked.
    Server "settings_applied" SettingsApplied {
        /// What changed.
        body: Body,
    };
    /// What the server's host is like.
    Server "fingerprint_is" FingerprintIs {
        /// The fingerprint.
        body: Body,
    };
    /// The run is set up; the client may open its data connections.
    Server "prepared" Prepared {
        /// The run.
        run: RunId,
        /// What the workload has to know of the server's end.
        body: Body,
    };
    /// All data connections have arrived.
    Server "ready" Ready {
        /// The run.
        run: RunId,
    };
    /// The start was heard.
    Server "started" Started {
        /// The run.
        run: RunId,
    };
    /// Counts on the way, for progress; the report does not depend on them.
    Server "interval" Interval {
        /// The run.
        run: RunId,
        /// The workload's counts.
        body: Body,
    };
    /// The server's half of the result.
    Server "report" Report {
        /// The run.
        run: RunId,
        /// The workload's result.
        body: Body,
    };
    /// What was asked for did not work. A run it names is over.
    Server "failed" Failed {
        /// The kind of the message that asked.
        call: String,
        /// The run that is over by this, if one is.
        run: Option<RunId>,
        /// What happened, and what to do about it.
        reason: String,
    };
    /// The server's last word. It may come at any time.
    Server "closed" Closed {
        /// Why, where the client did not ask for it.
        reason: Option<String>,
    };
    /// Heartbeat of an end that has nothing else to say.
    Either "alive" Alive;
}

impl Message {
    /// The run the message is about, if it is about one.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        match self {
            Self::Prepare { run, .. }
            | Self::Start { run, .. }
            | Self::Stop { run }
            | Self::Collect { run }
            | Self::Prepared { run, .. }
            | Self::Ready { run }
            | Self::Started { run }
            | Self::Interval { run, .. }
            | Self::Report { run, .. } => Some(*run),
            Self::Failed { run, .. } => *run,
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Sender {
    Client,
    Server,
    Either,
}

impl Sender {
    fn includes(self, side: Side) -> bool {
        match self {
            Self::Client => side == Side::Client,
            Self::Server => side == Side::Server,
            Self::Either => true,
        }
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

fn write_json<T: Serialize>(fields: &T) -> Result<String, WireError> {
    serde_json::to_string(fields)
        .map_err(|e| WireError::malformed(format!("a message that cannot be written: {e}")))
}

fn read_json<'a, T: Deserialize<'a>>(what: &str, text: &'a str) -> Result<T, WireError> {
    serde_json::from_str(text).map_err(|e| WireError::malformed(format!("{what}: {e}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_message() -> Vec<(Message, &'static str)> {
        let run = RunId(7);
        let body = || Body::of(&serde_json::json!({"a": [1, 2.5, null]})).unwrap();
        vec![
            (
                Message::Open { client_version: "0.1.0".into(), host: "alpha".into(), user: "ada".into() },
                r#"{"kind":"open","client_version":"0.1.0","host":"alpha","user":"ada"}"#,
            ),
            (Message::Ping { id: u64::MAX }, r#"{"kind":"ping","id":18446744073709551615}"#),
            (
                Message::Settings {
                    apply: vec!["nic.tso=off".into()],
                    allow_side_effects: true,
                    allow_global: false,
                },
                r#"{"kind":"settings","apply":["nic.tso=off"],"allow_side_effects":true,"allow_global":false}"#,
            ),
            (Message::VerifySettings, r#"{"kind":"verify_settings"}"#),
            (Message::RestoreSettings, r#"{"kind":"restore_settings"}"#),
            (Message::Fingerprint { peer: None }, r#"{"kind":"fingerprint","peer":null}"#),
            (
                Message::Prepare { run, flows: 4, lifetime_ms: 11_000, body: body() },
                r#"{"kind":"prepare","run":7,"flows":4,"lifetime_ms":11000,"body":{"a":[1,2.5,null]}}"#,
            ),
            (Message::Start { run, at_ns: 5 }, r#"{"kind":"start","run":7,"at_ns":5}"#),
            (Message::Stop { run }, r#"{"kind":"stop","run":7}"#),
            (Message::Collect { run }, r#"{"kind":"collect","run":7}"#),
            (Message::Outcome { body: body() }, r#"{"kind":"outcome","body":{"a":[1,2.5,null]}}"#),
            (Message::Close, r#"{"kind":"close"}"#),
            (
                Message::Opened {
                    server_version: "0.1.0".into(),
                    token: Token::from_random([0xab; 16]),
                    boot_id: Some("b".into()),
                    body: Body::none(),
                },
                r#"{"kind":"opened","server_version":"0.1.0","token":"abababababababababababababababab","boot_id":"b","body":null}"#,
            ),
            (
                Message::Refused {
                    reason: Refusal::Busy { holder: "ada@alpha".into(), since_s: 12, limit: 1 },
                    text: "busy".into(),
                },
                r#"{"kind":"refused","reason":{"why":"busy","holder":"ada@alpha","since_s":12,"limit":1},"text":"busy"}"#,
            ),
            (Message::Pong { id: 1, server_ns: 2 }, r#"{"kind":"pong","id":1,"server_ns":2}"#),
            (Message::SettingsApplied { body: Body::none() }, r#"{"kind":"settings_applied","body":null}"#),
            (Message::FingerprintIs { body: Body::none() }, r#"{"kind":"fingerprint_is","body":null}"#),
            (Message::Prepared { run, body: Body::none() }, r#"{"kind":"prepared","run":7,"body":null}"#),
            (Message::Ready { run }, r#"{"kind":"ready","run":7}"#),
            (Message::Started { run }, r#"{"kind":"started","run":7}"#),
            (Message::Interval { run, body: Body::none() }, r#"{"kind":"interval","run":7,"body":null}"#),
            (Message::Report { run, body: Body::none() }, r#"{"kind":"report","run":7,"body":null}"#),
            (
                Message::Failed { call: "start".into(), run: Some(run), reason: "no".into() },
                r#"{"kind":"failed","call":"start","run":7,"reason":"no"}"#,
            ),
            (Message::Closed { reason: None }, r#"{"kind":"closed","reason":null}"#),
            (Message::Alive, r#"{"kind":"alive"}"#),
        ]
    }

    #[test]
    fn every_kind_is_written_and_read_as_documented() {
        let messages = every_message();
        let kinds: Vec<&str> = messages.iter().map(|(message, _)| message.kind()).collect();
        assert_eq!(kinds, Message::KINDS);
        for (message, json) in messages {
            assert_eq!(message.to_json().unwrap(), json);
            assert_eq!(Message::from_json(json), Ok(message));
        }
    }

    #[test]
    fn an_unknown_kind_survives_the_round_trip() {
        let json = r#"{"kind":"teleport","to":{"x":[1,2]}}"#;
        let message = Message::from_json(json).unwrap();
        assert_eq!(message, Message::Unknown { kind: "teleport".into(), json: json.into() });
        assert_eq!(message.to_json().unwrap(), json);
    }

    #[test]
    fn fields_of_a_newer_version_are_ignored_and_optional_ones_may_be_absent() {
        for (json, message) in [
            (r#"{"run":1,"colour":"red","kind":"stop"}"#, Message::Stop { run: RunId(1) }),
            (r#"{"kind":"closed"}"#, Message::Closed { reason: None }),
            (
                r#"{"kind":"refused","reason":{"why":"full_moon","phase":1},"text":"later"}"#,
                Message::Refused { reason: Refusal::Unknown, text: "later".into() },
            ),
        ] {
            assert_eq!(Message::from_json(json), Ok(message));
        }
    }

    #[test]
    fn wrong_types_and_absent_fields_are_errors_and_not_guesses() {
        let deep = format!(r#"{{"kind":"stop","run":{}"#, "[".repeat(100_000));
        for json in [
            "",
            "null",
            "[]",
            "7",
            "\"close\"",
            "{}",
            r#"{"kind":7}"#,
            r#"{"kind":"stop"}"#,
            r#"{"kind":"stop","run":"7"}"#,
            r#"{"kind":"stop","run":-1}"#,
            r#"{"kind":"stop","run":4294967296}"#,
            r#"{"kind":"stop","run":1,"run":2}"#,
            r#"{"kind":"stop","run":1} x"#,
            r#"{"kind":"prepare","run":1,"flows":1e9,"lifetime_ms":1,"body":null}"#,
            r#"{"kind":"prepare","run":1,"flows":-3,"lifetime_ms":1,"body":null}"#,
            r#"{"kind":"settings","apply":"nic.tso=off","allow_side_effects":false,"allow_global":false}"#,
            r#"{"kind":"opened","server_version":"1","token":"+bababababababababababababababab","boot_id":null,"body":1}"#,
            &deep,
        ] {
            let shown = &json[..json.len().min(60)];
            assert!(matches!(Message::from_json(json), Err(WireError::Malformed { .. })), "{shown}");
        }
    }

    #[test]
    fn a_body_reads_as_its_type_or_says_what_is_wrong() {
        let body = Body::of(&vec![1_u64, u64::MAX]).unwrap();
        assert_eq!(body.read::<Vec<u64>>(), Ok(vec![1, u64::MAX]));
        let error = body.read::<String>().unwrap_err();
        assert!(error.to_string().contains("expected a string"), "{error}");
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn no_text_makes_the_reader_panic(text in any::<String>()) {
            let _ = Message::from_json(&text);
        }

        #[test]
        fn no_damage_to_a_message_makes_the_reader_panic(
            pick in 0..Message::KINDS.len(),
            at in any::<prop::sample::Index>(),
            with in any::<char>(),
        ) {
            let (_, json) = every_message().swap_remove(pick);
            let mut chars: Vec<char> = json.chars().collect();
            let at = at.index(chars.len());
            chars[at] = with;
            if let Ok(message) = Message::from_json(&chars.into_iter().collect::<String>()) {
                let again = message.to_json().unwrap();
                prop_assert_eq!(Message::from_json(&again).unwrap(), message);
            }
        }
    }
}
