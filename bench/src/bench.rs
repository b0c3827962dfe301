//! One run of one row: both ends started in a lab, looked at over a steady span.
//!
//! Each run has a lab of its own, so that nothing of the one before is in it: no port in `TIME_WAIT`, which some tools
//! cannot listen on and which a test of connections runs out of, and no remembered path. What taking the old one down
//! costs is over by the time the new one has settled.
//!
//! ```text
//! servers listen | clients start | traffic | settle | ── span ── | tail | clients end, and say what they did
//!                                                   ^ counters   ^ counters, CPU time of the host
//! ```

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use haul_host::netns::Netns;
use haul_host::probe::cpu::HostCpu;
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_host::{clock, ethtool};

use crate::figures::Figure;
use crate::process::Process;
use crate::table::{Blanks, Row, Table};

/// The port of the first server; each pair of ends has two, for tools that use two.
const PORT: u16 = 5301;

/// How long the parts of a run are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Slow start, caches, a scheduler that looks for places.
    pub(crate) settle: Duration,
    pub(crate) span: Duration,
    /// What the client runs on, so that its end is not in the span.
    pub(crate) tail: Duration,
}

/// What is run, and how long.
pub(crate) struct Bench {
    pub(crate) own: PathBuf,
    pub(crate) haul: PathBuf,
    pub(crate) payload: String,
    pub(crate) file: MessageFile,
    pub(crate) times: Times,
    /// Do not wait for the end of a client that has nothing to say.
    pub(crate) hurried: bool,
}

/// A file of one message where temporary files are, as iperf3 makes one to send; it is removed in the end.
pub(crate) struct MessageFile(PathBuf);

impl MessageFile {
    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("haul-bench-{}", std::process::id()));
        fs::write(&path, vec![1; 128 << 10]).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for MessageFile {
    fn drop(&mut self) {
        // Nothing is lost with a file that stays.
        let _ = fs::remove_file(&self.0);
    }
}

impl Bench {
    /// Runs a row once.
    pub(crate) fn measure(&self, table: &Table, row: &Row) -> Result<Figure> {
        let lab = build_lab(table.offloads)?;
        // In a hurry it only has to work.
        let settle = if self.hurried { table.settle / 8 } else { table.settle }.max(self.times.settle);
        let length = settle + self.times.span + self.times.tail;
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        let seats = row.place.seats().iter().zip((PORT..).step_by(2));
        for (&(_, cpu), port) in seats.clone() {
            let words = self.blanks(&lab, port, length).fill(&row.server);
            let mut server = Process::start(&lab.server, &words, cpu).context("server")?;
            await_listener(&lab, port, &mut server).context("server")?;
            servers.push(server);
        }
        let quiet = table.counts.read(&lab)?;
        for (&(cpu, _), port) in seats {
            let words = self.blanks(&lab, port, length).fill(&row.client);
            clients.push(Process::start(&lab.client, &words, cpu).context("client")?);
        }
        await_traffic(&lab, table, quiet.done, &mut clients)?;
        std::thread::sleep(settle);
        let (before, busy, at) = (table.counts.read(&lab)?, HostCpu::read()?, clock::now());
        std::thread::sleep(self.times.span);
        let (after, busy, elapsed) =
            (table.counts.read(&lab)?, HostCpu::read()?.since(&busy).busy, clock::now().since(at));
        for process in clients.iter_mut().chain(&mut servers) {
            process.must_run().context("within the measured span")?;
        }
        let word = self.words(row, clients)?;

        let arrived = after.datagrams.0 - before.datagrams.0;
        let dropped = after.datagrams.1 - before.datagrams.1;
        let lost = dropped as f64 / (arrived + dropped).max(1) as f64;
        let mut done = (after.done - before.done) as f64;
        ensure!(done > 0.0, "did nothing in the measured span");
        if table.counts == crate::counter::Counts::JoinedDatagrams {
            done *= 1.0 - lost;
        }
        let rate = done / elapsed.as_secs_f64();
        Ok(Figure { rate, cost: busy.as_secs_f64() / done, word: word.map(|word| word / rate), lost })
    }

    /// What the clients say themselves, added up.
    fn words(&self, row: &Row, clients: Vec<Process>) -> Result<Option<f64>> {
        /// Beside its own time: whole seconds rounded up, a last report, and a machine that stalls.
        const AT_MOST: Duration = Duration::from_secs(10);
        if self.hurried && !row.says.anything() {
            return Ok(None);
        }
        let mut sum = None;
        for client in clients {
            let text = client.finish(self.times.tail + AT_MOST).context("client")?;
            let rate = row.says.rate(&text)?;
            sum = rate.map(|rate| sum.unwrap_or(0.0) + rate);
        }
        Ok(sum)
    }

    fn blanks(&self, lab: &VethLab, port: u16, length: Duration) -> Blanks<'_> {
        let (haul, bare, payload) = (&self.haul, &self.own, &self.payload);
        Blanks { haul, bare, host: lab.server_addr, port, length, payload, file: &self.file.0 }
    }
}

/// Waits until a server listens: how long that takes differs by tool and by what else the machine does.
fn await_listener(lab: &VethLab, port: u16, server: &mut Process) -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(5);
    let until = clock::now().after(LONGEST);
    while clock::now() < until {
        let read = |table: &str| fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        let tables = lab.server.run(|| ["tcp", "tcp6", "udp", "udp6"].map(read))?;
        if tables.into_iter().flatten().any(|table| listens(&table, port)) {
            return Ok(());
        }
        server.must_run()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("did not listen within {LONGEST:?}")
}

/// Waits until there is traffic: tools take their time to agree on what to do.
fn await_traffic(lab: &VethLab, table: &Table, quiet: u64, clients: &mut [Process]) -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(10);
    let until = clock::now().after(LONGEST);
    while clock::now() < until {
        if table.counts.read(lab)?.done - quiet >= table.counts.traffic() {
            return Ok(());
        }
        clients.iter_mut().try_for_each(Process::must_run).context("client")?;
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("no traffic within {LONGEST:?}")
}

/// Whether `/proc/net/tcp` or `udp` has a socket that waits on a port. State 0A is a TCP socket that listens, 07 one of UDP
/// without a peer (proc(5), `include/net/tcp_states.h`).
fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port))
            && words.nth(1).is_some_and(|state| state == "0A" || state == "07")
    })
}

/// A lab with what no tool can choose for itself.
pub(crate) fn build_lab(offloads: bool) -> Result<VethLab> {
    let lab = VethLab::build(VethOptions::default()).context("cannot build the lab (are you root?)")?;
    for netns in [&lab.client, &lab.server] {
        // The default congestion control may be bbr, which paces a veth pair to a fifth of what it carries.
        set(netns, "tcp_congestion_control", "reno")?;
        // A connection for each transaction: with the usual range and a minute of TIME_WAIT the ports are gone within a
        // second, and connect(2) spends its time looking for one.
        set(netns, "ip_local_port_range", "1024 65000")?;
        set(netns, "tcp_tw_reuse", "1")?;
    }
    set_offloads(&lab, offloads)?;
    Ok(lab)
}

fn set(netns: &Netns, name: &str, value: &str) -> Result<()> {
    let written = netns.run(|| fs::write(format!("/proc/sys/net/ipv4/{name}"), value))?;
    written.with_context(|| format!("cannot set net.ipv4.{name} to {value}"))
}

fn set_offloads(lab: &VethLab, on: bool) -> Result<()> {
    for (netns, device) in [(&lab.client, &lab.client_dev), (&lab.server, &lab.server_dev)] {
        let wanted = ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro"].map(|name| (name, on));
        netns
            .run(|| ethtool::set_wanted(device.index, &device.name, &wanted))?
            .context("cannot switch the offloads")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_listened_on_by_tcp_or_udp_and_not_by_a_connection_to_it() {
        const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue
   0: 020012C6:14B5 00000000:0000 0A 00000000:00000000
   1: 020012C6:14B7 00000000:0000 07 00000000:00000000
   2: 020012C6:8235 020012C6:14B9 01 00000000:00000000
   3: 020012C6:14BB 020012C6:8235 06 00000000:00000000
";
        assert!(listens(TABLE, 0x14B5) && listens(TABLE, 0x14B7));
        assert!(!listens(TABLE, 0x14B9) && !listens(TABLE, 0x14BB) && !listens(TABLE, 0));
    }
}
