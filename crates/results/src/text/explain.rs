//! What a name means, and what a host says about itself.
//!
//! The metrics and doubts come from the tables that also make the record, so an explanation cannot lag behind what it
//! explains. The other words of a report are few and are explained here.

use super::number::NONE;
use super::wrap::{label, paragraph};
use super::{Layout, Tone, Width, foreign};
use crate::error::ResultsError;
use crate::record::{Environment, Fact, Facts};
use haul_stats::{Better, DoubtId, Metric};

/// Widest column of names before their texts start on the next line.
const NAMES: usize = 30;

/// What stands between a device and its features in the names of facts: `nic.feature.rx-gro`, `path.eth0.feature.rx-gro`.
const FEATURES: &str = ".feature.";

/// Words of a report that are neither metrics nor doubts.
const WORDS: [(&str, &str); 64] = [
    ("client", "The end that drives the test."),
    ("server", "The end that runs 'haul serve'."),
    (
        "sender",
        "The end that sent the payload in the direction measured: the client, or with --direction receive the server.",
    ),
    (
        "receiver",
        "The end that took the payload. Its bytes over its own elapsed time are the headline throughput.",
    ),
    (
        "shared_host",
        "Client and server run on one kernel. Its CPU time is shown once, under 'both'; the ends are told apart by the \
         time of their threads.",
    ),
    (
        "both",
        "In a table: what the one kernel of a shared host spent on both ends together (see shared_host).",
    ),
    ("runs", "In a table: how many runs a row is the mean of, and of how many where some do not count."),
    (
        "change",
        "In a comparison: how much more or less the arm has than the base. It comes from the pairs, not from the means \
         beside it. In a survey: how much more or less the median is than that of the base (see base); with ~ the intervals \
         of the two overlap, and it may be none.",
    ),
    ("flow", "One data connection, or one pair of UDP addresses."),
    (
        "transaction",
        "A request and its whole response; with crr also the opening and closing of a connection of its own.",
    ),
    (
        "latency",
        "How long a transaction took. Service time, from its send call to the last byte of its response; with --rate, from \
         the time it was due. A percentile is shown once ten samples are expected beyond it.",
    ),
    (
        "probe",
        "A small request at a time on a connection of its own beside the flows (--probe): what the load does to the latency \
         of others.",
    ),
    (
        "run",
        "One execution with new connections: a warm-up, then one measured window. The unit of statistics.",
    ),
    (
        "window",
        "The part of a run that is measured: the difference of two snapshots of counters that are never reset.",
    ),
    ("cell", "One combination of the values of a sweep."),
    (
        "survey",
        "Many short samples of every cell on this host, as 'haul read' makes it: each sample is a run of the record.",
    ),
    (
        "round",
        "In a survey: one sample of every cell, in a random order of its own, so that drift meets all cells alike.",
    ),
    ("arm", "One variant of a comparison. The first one is the base."),
    (
        "pair",
        "One run of each of two arms, adjacent in time. Changes are taken within pairs, so what is slower than a pair \
         cancels.",
    ),
    (
        "interval",
        "In a comparison: the range of changes the pairs are compatible with, at the confidence named. It is not the \
         spread of the runs, which stands behind ±. In a survey: where the median lies, whatever the distribution of the \
         samples. In a run: a slice of the window.",
    ),
    (
        "better",
        "The whole interval lies beyond the least effect that matters, in the better direction of the metric.",
    ),
    (
        "worse",
        "The whole interval lies beyond the least effect that matters, against the better direction of the metric.",
    ),
    (
        "equivalent",
        "The whole interval lies within the least effect that matters: there is no change worth the name.",
    ),
    (
        "undecided",
        "The runs do not tell. The reason stands beside it, with the number of pairs that would decide.",
    ),
    (
        "cost",
        "What a symbol or a class takes of CPU time (or cycles) for each KiB received, or each transaction, in profiled runs. Those of \
         an end's threads add up to their CPU time, and those of a host to its busy time, which has other programs in it; a share \
         of samples also moves when something else does.",
    ),
    (
        "share",
        "In a table of costs: the part of everything that was not idle, in percent. Read the cost first: a share grows when something \
         else shrinks.",
    ),
    (
        "task_clock",
        "An event: the time for which a thread ran, or a CPU counted. A thread's stops and starts with each context switch and leaves \
         out the switch itself, which the thread's CPU clock (thread_cpu, service_demand) has in it: of a thread that sleeps and \
         wakes thousands of times a second it is some percent less.",
    ),
    (
        "class",
        "What kind of work a symbol does: copy, checksum, allocation, locking, softirq, driver, scheduler, tcp … 'haul stream lab \
         --profile' shows the cost of each.",
    ),
    (
        "estimate",
        "An event that was on one of the CPU's counters for a part of the window, scaled up from that. With fewer events at a time \
         it is a count.",
    ),
    ("others", "Everything sampled in symbols that each have less than a thousandth of the whole."),
    (
        "void",
        "The run was made, but something changed that nobody asked for: it is kept, with the reason, and does not count.",
    ),
    (
        "hot",
        "A cache state of 'haul copy': one place is copied again and again, so that its lines are in the nearest cache \
         that holds source and destination. Looked at: the bytes that arrive after each sample.",
    ),
    (
        "l2",
        "A cache state of 'haul copy': a ring of places larger than the first-level cache, a quarter of the second level \
         for each of source and destination, all of it read before each sample and walked in an order that no prefetcher \
         foresees. So each place was last touched a walk of the ring ago. It is made so, and not verified: no counter \
         tells where a line is.",
    ),
    (
        "llc",
        "A cache state of 'haul copy': as l2, with a ring that is larger than the second level and at most a quarter of \
         the last one, 16 MiB at most. The size of a last level that is shared, or told by a hypervisor, may not be what \
         this program has of it: compare with --limits.",
    ),
    (
        "cold",
        "A cache state of 'haul copy': a ring whose two halves are the size of the last level each, so that each place \
         was last touched twice that level ago and comes from memory. The TLB is cold as well.",
    ),
    (
        "flushed",
        "A cache state of 'haul copy': source and destination are taken out of all caches by an instruction (clflush, dc \
         civac) before each batch of copies, which is not timed. The TLB is warm.",
    ),
    (
        "pages",
        "The pages of the buffers of 'haul copy': 4k, 2m, 1g. What was asked for is read back from /proc/self/smaps, and \
         where less than 90 % of the buffer has it the cell has no number. Without --pages 2m where the system gives \
         them.",
    ),
    (
        "alignment",
        "In a selection, how source and destination lie: 'lines' (both begin a line of 64 bytes), 'same' (they agree \
         modulo 64), 'words' (modulo 8), 'dst-line' (the destination begins a line), 'apart' (none of these).",
    ),
    (
        "selection",
        "A table for one CPU of which routine to take by alignment and length, printed by 'haul copy --thresholds', \
         loaded by haul-copy and by --selection. A line takes over only where a rank-sum test says so after correction \
         for all comparisons of the survey.",
    ),
    (
        "~",
        "In a survey: the interval of this figure overlaps that of what it is compared with, or one of the two has none, \
         so that there may be no difference. What it is compared with stands below the numbers.",
    ),
    (
        "!",
        "In a table: the runs fall into two groups, so that no single mean describes them (see two_modes).",
    ),
    (
        "map",
        "In a survey of two axes or more: the medians, the longest axis down and what is compared across, one map for \
         each combination of the others. --long has a row for each cell in place of it, with intervals and times.",
    ),
    (
        "then_read",
        "In 'haul copy --then-read': the copy is read after it was made, and both are timed as 'copy+read': what a store \
         past the caches saves the copy, the reader pays.",
    ),
    (
        "base",
        "What a figure of a survey is compared with: the cell with the first value of the routine, or of the call, where \
         that is swept, else of the longest axis, with all else alike.",
    ),
    (
        "best",
        "As a routine of 'haul copy': the one of haul-copy that chooses by itself for each copy. Which it is on this CPU \
         stands below the numbers.",
    ),
    (
        "event",
        "In a table: what was counted, by its name for --event. 'perf list' has the names of a CPU's own.",
    ),
    ("count", "In a table: how many of an event there were in the window; the mean of the runs."),
    (
        "symbol",
        "A function of the kernel, of a program or of a library, by its name; the module stands behind it where it is not the kernel.",
    ),
    ("of", "In a table of events: whose they are, all CPUs of a host or the worker threads of one end."),
    (
        "level",
        "The value that an option of a sweep has in a cell; of a cache, the nearest that holds all that is touched.",
    ),
    (
        "all",
        "In a table of costs: everything that was not idle, the sum of the classes. As an arm or routine of a published table: the \
         routine was taken for every buffer, and not for unaligned ones alone.",
    ),
    (
        "unaligned",
        "Of a published table: the routine was taken for buffers that do not begin at a word, and the usual one for the others.",
    ),
    ("today", "Beside a published figure: what this host and kernel came to for the same cell."),
    (
        "routine",
        "A way to copy, or to sum up, by its name in haul-copy: 'haul copy --limits' lists those of this CPU.",
    ),
    (
        "part",
        "Of a cost or a class: what is in one symbol or class and not in what it calls, so that parts add up. Of a window: an event that \
         was on a counter for a part of it is an estimate.",
    ),
    (
        "ceiling",
        "What the memory of this host gives at most, sampled in the same rounds as the routines: no copy of that size can be faster, and \
         'of ceiling' is a routine's share of it.",
    ),
    (
        "user",
        "A class of costs: programs of either end in user mode, haul's own too. 'other programs' are those that have no part in the run.",
    ),
    ("other", "A class of costs: what the kernel does in symbols of none of the other classes."),
    (
        "user mode only",
        "A profile of an ordinary user: the worker threads alone, without what the kernel did for them, because \
         kernel.perf_event_paranoid forbids more. Not to be compared with one that has the kernel.",
    ),
    (
        "limits",
        "What 'haul copy --limits' prints: which routines this CPU has, for which lengths and alignments, and why not the others.",
    ),
    (
        "thresholds",
        "What 'haul copy --thresholds' prints: from which size on one routine overtakes another, as a selection.",
    ),
    (
        "verdict",
        "In a comparison: better, worse, equivalent or undecided; – where the metric has no better direction.",
    ),
    (
        "direction",
        "Which way a leg of a run sends: from the client to the server, from the server to the client, or both.",
    ),
    ("ratio", "In a table: how many times the first of two figures the second is."),
];

/// What the columns of tables are called, and which metrics stand in them.
const COLUMNS: &[(&str, &[Metric])] = &[
    ("packets", &[Metric::PacketRate]),
    ("min", &[Metric::LatencyMin]),
    ("mean", &[Metric::LatencyMean]),
    ("p50", &[Metric::LatencyP50]),
    ("p90", &[Metric::LatencyP90]),
    ("p95", &[Metric::LatencyP95]),
    ("p99", &[Metric::LatencyP99]),
    ("p99.9", &[Metric::LatencyP99_9]),
    ("p99.99", &[Metric::LatencyP99_99]),
    ("max", &[Metric::LatencyMax]),
    ("idle p50", &[Metric::ProbeIdleP50]),
    ("idle p99", &[Metric::ProbeIdleP99]),
    ("loaded p50", &[Metric::ProbeLoadedP50]),
    ("loaded p99", &[Metric::ProbeLoadedP99]),
    ("idle", &[Metric::ProbeIdleP50, Metric::ProbeIdleP99]),
    ("loaded", &[Metric::ProbeLoadedP50, Metric::ProbeLoadedP99]),
    ("CPU", &[Metric::CpuUtilization, Metric::CopyCpu]),
    ("demand", &[Metric::ServiceDemand, Metric::ServiceDemandTransaction]),
    ("retrans", &[Metric::Retransmits]),
    ("moved", &[Metric::BytesWindow]),
    ("sent again", &[Metric::Retransmits, Metric::Resends]),
    ("mapped", &[Metric::ReceiveMapped]),
    ("copied", &[Metric::ZerocopyCopied]),
    ("rate", &[Metric::CopyRate]),
    ("call", &[Metric::CopyTime]),
    ("read-through", &[Metric::ReadTime]),
    ("write-through", &[Metric::WriteTime]),
    ("cycles", &[Metric::CyclesPerByte]),
    ("instructions", &[Metric::InstructionsPerByte]),
    ("of ceiling", &[Metric::CeilingShare]),
];

/// What `name` means; without a name, all names there are.
pub fn explain(name: Option<&str>, layout: impl Into<Layout>) -> Result<String, ResultsError> {
    let layout = layout.into();
    let Some(name) = name else { return Ok(overview(layout)) };
    let plain = |name: &str| name.to_ascii_lowercase().replace([' ', '-', '.'], "_");
    let wanted = plain(name);
    let mut out = String::new();
    // A number and the doubt about it can have one name: both are meant.
    let mut entry = |title: &str, meaning: &str| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&layout.paint(Tone::Heading, title));
        out.push('\n');
        paragraph(&mut out, "  ", meaning, 2, layout.columns());
    };
    if let Some(metric) = Metric::ALL.iter().find(|metric| metric.facts().name == wanted) {
        let facts = metric.facts();
        let title = format!("{} ({}; {})", facts.name, facts.unit, direction(facts.better));
        entry(&title, facts.meaning);
    }
    if let Some((column, metrics)) = COLUMNS.iter().find(|(column, _)| plain(column) == wanted) {
        let names: Vec<String> = metrics.iter().map(|metric| metric.facts().name.to_owned()).collect();
        entry(column, &format!("In a table: {}.", super::enumerate(&names)));
        for facts in metrics.iter().map(|metric| metric.facts()) {
            let title = format!("{} ({}; {})", facts.name, facts.unit, direction(facts.better));
            entry(&title, facts.meaning);
        }
    }
    if let Some(doubt) = DoubtId::ALL.iter().find(|doubt| doubt.name() == wanted) {
        entry(&format!("{} (a doubt about a result)", doubt.name()), doubt.advice());
    }
    if let Some((word, meaning)) = WORDS.iter().find(|(word, _)| plain(word) == wanted) {
        entry(word, meaning);
    }
    if !out.is_empty() {
        return Ok(out);
    }
    let known = Metric::ALL
        .iter()
        .map(|metric| metric.facts().name)
        .chain(DoubtId::ALL.iter().map(|doubt| doubt.name()))
        .chain(COLUMNS.iter().map(|(column, _)| *column))
        .chain(WORDS.iter().map(|(word, _)| *word));
    let near = known
        .map(|known| (strsim::jaro_winkler(known, &wanted), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = near.map_or_else(String::new, |(_, known)| format!(", did you mean '{known}'?"));
    Err(ResultsError::UnknownName { name: label(name, NAMES), hint })
}

fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
        Better::Neither => "describes the run, no verdict",
    }
}

fn overview(layout: Layout) -> String {
    let mut out = layout.paint(Tone::Heading, "metrics");
    out.push('\n');
    let width = Metric::ALL.iter().map(|metric| metric.facts().name.len()).max().unwrap_or(0);
    let units = Metric::ALL.iter().map(|metric| metric.facts().unit.len()).max().unwrap_or(0);
    for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
        let lead = format!("  {:<width$}  {:<units$}  ", facts.name, facts.unit);
        paragraph(&mut out, &lead, direction(facts.better), lead.len(), layout.columns());
    }
    layout.heading(&mut out, "columns of tables that are called otherwise");
    let width = COLUMNS.iter().map(|(column, _)| column.len()).max().unwrap_or(0);
    for (column, metrics) in COLUMNS {
        let names: Vec<String> = metrics.iter().map(|metric| metric.facts().name.to_owned()).collect();
        let lead = format!("  {column:<width$}  ");
        paragraph(&mut out, &lead, &names.join(", "), lead.len(), layout.columns());
    }
    layout.heading(&mut out, "doubts");
    let width = DoubtId::ALL.iter().map(|doubt| doubt.name().len()).max().unwrap_or(0);
    for doubt in DoubtId::ALL {
        let lead = format!("  {:<width$}  ", doubt.name());
        paragraph(&mut out, &lead, doubt.advice(), lead.len(), layout.columns());
    }
    layout.heading(&mut out, "words");
    let width = WORDS.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
    for (word, meaning) in WORDS {
        let lead = format!("  {word:<width$}  ");
        paragraph(&mut out, &lead, meaning, lead.len(), layout.columns());
    }
    out.push('\n');
    paragraph(
        &mut out,
        "",
        "'haul explain NAME' tells what a metric is and how it is obtained.",
        0,
        layout.columns(),
    );
    out
}

/// A fingerprint, one fact a line.
#[must_use]
pub fn facts(facts: &Facts, layout: impl Into<Layout>) -> String {
    let mut out = String::new();
    list(&mut out, facts.iter().map(|(name, fact)| (name.as_str(), shown(fact))), layout.into().width);
    out
}

fn shown(fact: &Fact) -> String {
    match (&fact.value, &fact.reason) {
        (Some(value), _) => foreign(value),
        (None, Some(reason)) => format!("{NONE} ({})", foreign(reason)),
        (None, None) => NONE.to_owned(),
    }
}

/// The facts, one a line; a device's features, of which there are some sixty, by their state instead.
fn list<'a>(out: &mut String, facts: impl Iterator<Item = (&'a str, String)>, width: Width) {
    let mut lines: Vec<(String, String)> = Vec::new();
    for (name, value) in facts {
        let (name, value) = match name.split_once(FEATURES) {
            Some((device, feature)) => (foreign(&format!("{device}{FEATURES}* {value}")), foreign(feature)),
            None => (foreign(name), value),
        };
        match lines.iter_mut().find(|(known, _)| *known == name && name.contains(FEATURES)) {
            Some((_, features)) => {
                features.push_str(", ");
                features.push_str(&value);
            }
            None => lines.push((name, value)),
        }
    }
    let facts = lines;
    let names = facts.iter().map(|(name, _)| name.chars().count()).filter(|&n| n <= NAMES).max().unwrap_or(0);
    for (name, value) in facts {
        let mut lead = format!("  {name:<names$}  ");
        if name.chars().count() > names {
            out.push_str(lead.trim_end());
            out.push('\n');
            lead = " ".repeat(names + 4);
        }
        paragraph(out, &lead, &value, names + 4, width.columns());
    }
}

/// The fingerprints of both ends: what they share once, what differs for each.
pub(super) fn environment(out: &mut String, environment: &Environment, layout: Layout) {
    match (&environment.client, &environment.server) {
        (None, None) => out.push_str("\nno end described itself\n"),
        (Some(only), None) => section(out, "client", only.iter(), layout),
        (None, Some(only)) => section(out, "server", only.iter(), layout),
        (Some(client), Some(server)) => {
            let shared = |other: &Facts, name: &String, fact: &Fact| {
                other.get(name).is_some_and(|theirs| theirs == fact)
            };
            section(
                out,
                "client and server",
                client.iter().filter(|(name, fact)| shared(server, name, fact)),
                layout,
            );
            section(out, "client", client.iter().filter(|(name, fact)| !shared(server, name, fact)), layout);
            section(out, "server", server.iter().filter(|(name, fact)| !shared(client, name, fact)), layout);
        }
    }
}

fn section<'a>(
    out: &mut String,
    title: &str,
    facts: impl Iterator<Item = (&'a String, &'a Fact)>,
    layout: Layout,
) {
    let facts: Vec<(&str, String)> = facts.map(|(name, fact)| (name.as_str(), shown(fact))).collect();
    if !facts.is_empty() {
        layout.heading(out, title);
        list(out, facts.into_iter(), layout.width);
    }
}
