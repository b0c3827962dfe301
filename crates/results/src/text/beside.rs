//! What the hosts did beside a single run, in a line or two: interrupts, packets of the devices, and what was busy anyway.
//!
//! Everything is in the record; here stands what says something at a glance. A run without such readings, as of an older
//! record, has no such lines.

use haul_stats::{Metric, Scope, Value};

use super::Layout;
use super::cells::whose;
use super::number::{grouped, quantity};
use super::rows::{reading, value};
use super::wrap::{bound, paragraph};
use crate::record::Run;

/// Whose numbers there can be, in the order they are told.
const SCOPES: [Scope; 5] = [Scope::SharedHost, Scope::Sender, Scope::Receiver, Scope::Client, Scope::Server];

/// From this share on, what the CPUs were busy with anyway is told beside the plain figure, in percent.
const BACKGROUND: f64 = 5.0;

pub(super) fn show(out: &mut String, run: &Run, layout: Layout) {
    let counts = |metric: Metric, scope: Scope| match reading(run, metric, scope)?.value? {
        Value::Int(count) => Some(count),
        Value::Real(_) => None,
    };
    let told: Vec<(Scope, Vec<String>)> = SCOPES
        .iter()
        .map(|&scope| (scope, of_one(run, scope, &counts)))
        .filter(|(_, it)| !it.is_empty())
        .collect();
    if told.is_empty() {
        return;
    }
    layout.heading(out, "beside it, in the window");
    for (scope, parts) in told {
        let lead = format!("  {}: ", whose(Metric::Interrupts, scope));
        let parts: Vec<String> = parts.iter().map(|part| bound(part)).collect();
        paragraph(out, &lead, &parts.join(", "), 4, layout.columns());
    }
}

fn of_one(run: &Run, scope: Scope, counts: &dyn Fn(Metric, Scope) -> Option<u64>) -> Vec<String> {
    let real = |metric| value(run, metric, scope);
    let rate = |per_second: f64| format!("{}/s", grouped_real(per_second));
    let mut parts = Vec::new();
    if let Some(count) = counts(Metric::Interrupts, scope) {
        let mut each: Vec<String> = real(Metric::InterruptsPerSecond).map(rate).into_iter().collect();
        each.extend(real(Metric::InterruptsPerGb).map(|per| format!("{}/GB", grouped_real(per))));
        each.extend(real(Metric::InterruptsPerTransaction).map(|per| format!("{per:.2}/transaction")));
        parts.push(format!("{} interrupts ({})", grouped(count), each.join(", ")));
    }
    if let Some(nic) = counts(Metric::InterruptsNic, scope) {
        let each = real(Metric::PacketsPerInterrupt);
        let each = each.map_or_else(String::new, |each| format!(" ({each:.1} packets each)"));
        parts.push(format!("{} of the NIC{each}", grouped(nic)));
    }
    if let Some(packets) = real(Metric::DevicePacketsPerSecond) {
        parts.push(format!("{} packets/s of the device", grouped_real(packets)));
    }
    for (metric, what) in [
        (Metric::SoftnetDropped, "dropped by a full queue of received packets"),
        (Metric::SoftnetSqueezed, "times NET_RX left packets lying"),
        (Metric::DeviceDrops, "dropped by the device"),
        (Metric::QdiscDrops, "dropped by its queueing discipline"),
    ] {
        if let Some(count) = counts(metric, scope).filter(|count| *count > 0) {
            parts.push(format!("{} {what}", grouped(count)));
        }
    }
    let background = real(Metric::CpuBackground).filter(|share| *share > BACKGROUND);
    let net = real(Metric::ServiceDemandNet).map(|net| quantity("us/KiB", net));
    let net =
        net.or_else(|| real(Metric::ServiceDemandNetTransaction).map(|net| quantity("us/transaction", net)));
    if let (Some(share), Some(net)) = (background, net) {
        parts.push(format!("demand {net} without the {share:.0} % of the CPUs that were busy before"));
    }
    parts
}

/// A rate with its digits in groups.
fn grouped_real(value: f64) -> String {
    /// From here on no decimals are wanted, and the number is far from what a `u64` holds.
    const WHOLE: std::ops::Range<f64> = 100.0..1e15;
    if WHOLE.contains(&value) {
        format!("{value:.0}").parse().map_or_else(|_| value.to_string(), grouped)
    } else {
        format!("{value:.1}")
    }
}
