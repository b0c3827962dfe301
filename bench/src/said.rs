//! What a tool says of itself, to hold it against what was counted.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// How to read a rate per second from what the client wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// Not at all: it says nothing, or of a span with other things in it.
    Nothing,
    /// haul's document: this metric, at the receiver or of the run.
    Haul(&'static str),
    /// The bare loops: a number and nothing else.
    Number,
    /// qperf with `-uu`: half a round trip in nanoseconds.
    Qperf,
    /// sockperf: messages that came back, and in how many seconds.
    Sockperf,
}

impl Says {
    /// The rate in the units that are counted: bytes, packets or transactions per second.
    pub(crate) fn rate(self, text: &str) -> Result<Option<f64>> {
        let rate = match self {
            Self::Nothing => return Ok(None),
            Self::Haul(metric) => haul(text, metric)?,
            Self::Number => text.trim().parse().with_context(|| format!("not a number: {text:?}"))?,
            Self::Qperf => 1e9 / (2.0 * number_after(text, "latency")?),
            Self::Sockperf => {
                let at =
                    text.find("[Valid Duration]").context("no [Valid Duration] in what sockperf wrote")?;
                let line = &text[at..];
                number_after(line, "ReceivedMessages=")? / number_after(line, "RunTime=")?
            }
        };
        Ok(Some(rate))
    }

    /// Whether the client must come to its own end to say it.
    pub(crate) fn anything(self) -> bool {
        self != Self::Nothing
    }
}

/// A metric of the only run of haul's document.
fn haul(text: &str, metric: &str) -> Result<f64> {
    let document: Value = serde_json::from_str(text).context("haul wrote no document")?;
    let run = &document["runs"][0];
    if document["status"] != "complete" {
        let why = [&document["failure"]["text"], &run["failure"]["text"]].into_iter().find_map(Value::as_str);
        bail!("haul's run is not complete: {}", why.unwrap_or("no reason given"));
    }
    let readings = run["readings"].as_array().context("haul's document has no readings")?;
    let wanted =
        readings.iter().filter(|reading| reading["metric"] == metric && reading["value"].is_number());
    let best = wanted.max_by_key(|reading| match reading["scope"].as_str() {
        Some("receiver") => 2,
        Some("client" | "run") => 1,
        _ => 0,
    });
    let value = best.and_then(|reading| reading["value"].as_f64());
    let value = value.with_context(|| format!("haul reports no {metric}"))?;
    Ok(if metric == "throughput" { value / 8.0 } else { value })
}

/// The number that follows `mark`, with or without an equals sign.
fn number_after(text: &str, mark: &str) -> Result<f64> {
    let rest = text.split_once(mark).with_context(|| format!("no '{mark}' in {text:?}"))?.1;
    let rest = rest.trim_start_matches([' ', '=']);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().with_context(|| format!("no number after '{mark}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(says: Says, text: &str) -> f64 {
        says.rate(text).expect("readable").expect("a rate")
    }

    fn close(one: f64, other: f64) -> bool {
        (one / other - 1.0).abs() < 1e-9
    }

    #[test]
    fn each_tool_is_read_as_it_writes() {
        assert!(close(rate(Says::Number, "141000.5\n"), 141_000.5));
        for qperf in [
            "tcp_lat:\n    latency   =        5000 ns\n    msg_size  =  1\n",
            "udp_lat:\n    latency  =  5000 ns\n",
        ] {
            assert!(close(rate(Says::Qperf, qperf), 100_000.0));
        }
        let sockperf = "sockperf: [Total Run] RunTime=2.000 sec; Warm up time=400 msec; ReceivedMessages=264713\n\
            sockperf: [Valid Duration] RunTime=1.550 sec; SentMessages=221018; ReceivedMessages=221017\n";
        assert!(close(rate(Says::Sockperf, sockperf), 221_017.0 / 1.55));
        assert_eq!(Says::Nothing.rate("anything").expect("nothing to read"), None);
    }

    #[test]
    fn of_haul_the_receivers_figure_is_taken_and_throughput_is_in_bits() {
        let reading = |metric: &str, scope: &str, value: &str| {
            format!(r#"{{"metric":"{metric}","scope":"{scope}","value":{value}}}"#)
        };
        let document = |status: &str, readings: &[String]| {
            format!(
                r#"{{"status":"{status}","failure":null,"runs":[{{"readings":[{}]}}]}}"#,
                readings.join(",")
            )
        };
        let text = document(
            "complete",
            &[
                reading("throughput", "sender", "99"),
                reading("throughput", "receiver", "80"),
                reading("packet_rate", "receiver", "null"),
                reading("transactions", "client", "7.5"),
            ],
        );
        assert!(close(rate(Says::Haul("throughput"), &text), 10.0));
        assert!(close(rate(Says::Haul("transactions"), &text), 7.5));
        let error = Says::Haul("packet_rate").rate(&text).expect_err("absent");
        assert!(error.to_string().contains("packet_rate"), "{error}");
        let failed = r#"{"status":"failed","failure":{"text":"the server is busy"},"runs":[]}"#;
        let error = Says::Haul("throughput").rate(failed).expect_err("failed");
        assert!(error.to_string().contains("the server is busy"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for (says, text) in [
            (Says::Number, "fast"),
            (Says::Qperf, "failed to connect"),
            (Says::Sockperf, "Total 0"),
            (Says::Haul("transactions"), "{"),
        ] {
            says.rate(text).expect_err(text);
        }
    }
}
