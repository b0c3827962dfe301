//! Every way of sending and receiving, against a bare loop of the same system calls.

use std::process::Command;

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use crate::{Bench, Figure, PORT, median, ratios};

/// How bytes are sent and received.
const MODES: [(&str, &str); 7] = [
    ("write", "read"),
    ("write", "discard"),
    ("sendfile", "read"),
    ("sendfile", "discard"),
    ("splice", "read"),
    ("splice", "discard"),
    ("zerocopy", "read"),
];

/// Who moves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Haul,
    Bare,
}

/// Runs every mode by haul and by the bare loop, all of them once in each round and in random order.
pub(crate) fn run(bench: &Bench, rounds: usize, pinned: bool) -> Result<()> {
    let mut order: Vec<(usize, Who)> =
        (0..MODES.len()).flat_map(|mode| [(mode, Who::Haul), (mode, Who::Bare)]).collect();
    let mut random = SmallRng::seed_from_u64(2);
    let mut figures = vec![(Vec::new(), Vec::new()); MODES.len()];
    for round in 0..rounds {
        order.shuffle(&mut random);
        for &(mode, who) in &order {
            let (send, receive) = MODES[mode];
            let figure = bench
                .measure_commands(pinned, |seconds| commands(bench, who, send, receive, seconds))
                .with_context(|| format!("{who:?}, {send} to {receive}"))?;
            let (haul, bare) = &mut figures[mode];
            if who == Who::Haul { haul } else { bare }.push(figure);
        }
        eprintln!("round {} of {rounds} done", round + 1);
    }
    print(pinned, &figures);
    Ok(())
}

/// The commands of the server and client ends.
fn commands(bench: &Bench, who: Who, send: &str, receive: &str, seconds: f64) -> (Command, Command) {
    let at = format!("{}:{PORT}", bench.lab.server_addr);
    let (mut server, mut client);
    match who {
        Who::Haul => {
            (server, client) = (Command::new(&bench.haul), Command::new(&bench.haul));
            server.args(["serve", "--listen", &at, "--open"]);
            let run = format!("{}ms", (seconds * 1e3).round());
            client.args(["stream", &at, "--open", "--warmup", "0ms", "--time", &run, "--format", "json"]);
            client.args(["--send-with", send, "--recv-with", receive]);
        }
        Who::Bare => {
            (server, client) = (Command::new(&bench.own), Command::new(&bench.own));
            server.args(["bare-receive", &at]);
            if receive == "discard" {
                server.arg("--discard");
            }
            client.args(["bare-send", &at, &seconds.to_string(), "--how", send]);
        }
    }
    (server, client)
}

fn print(pinned: bool, figures: &[(Vec<Figure>, Vec<Figure>)]) {
    let place = if pinned { "client on CPU 0 and server on CPU 1" } else { "not pinned" };
    println!("\none TCP stream by each mode, 128 KiB messages, reno, offloads on, {place}");
    println!(
        "{:<20} {:>7} {:>7} {:>9} {:>9}   haul/bare, median of rounds (min … max)",
        "mode", "Gbit/s", "bare", "CPU s/GB", "bare"
    );
    for ((send, receive), (haul, bare)) in MODES.iter().zip(figures) {
        let rate = |of: &[Figure]| median(of.iter().map(|figure| figure.gbit_per_s).collect());
        let cost = |of: &[Figure]| median(of.iter().map(|figure| figure.cpu_s_per_gb).collect());
        println!(
            "{:<20} {:>7.2} {:>7.2} {:>9.3} {:>9.3}   throughput {}   CPU/GB {}",
            format!("{send} → {receive}"),
            rate(haul),
            rate(bare),
            cost(haul),
            cost(bare),
            ratios(haul, bare, |figure| figure.gbit_per_s),
            ratios(haul, bare, |figure| figure.cpu_s_per_gb),
        );
    }
}
