//! A table: what is run against what, written as data.
//!
//! A row is the two command lines of a tool, with blanks for what differs from run to run:
//!
//! | blank | stands for |
//! |---|---|
//! | `{haul}`, `{bare}` | the two programs built from this workspace |
//! | `{host}`, `{port}`, `{at}` | the server's address, a port of its own for each pair of ends, and `host:port` |
//! | `{next}` | the port after it, for tools that use two |
//! | `{seconds}`, `{ms}`, `{whole}` | how long the client is to run: in seconds, as `2700ms`, in seconds rounded up |
//! | `{payload}` | what haul sends, as this program was told |
//! | `{file}` | a file of one message in the directory for temporary files |
//!
//! A [`Ratio`] names the rows it is taken of, and the bound that haul's makers have set themselves, if any.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::counter::Counts;
use crate::said::Says;

/// Which CPUs the ends may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All.
    Anywhere,
    /// The client CPU 0 and the server CPU 1.
    Across,
    /// Both CPU 0.
    Same,
    /// Two clients and two servers: one pair of them on CPU 0, the other on CPU 1.
    Pairs,
}

impl Place {
    /// The CPU of the client and that of the server, for each pair of ends.
    pub(crate) fn seats(self) -> &'static [(Option<u32>, Option<u32>)] {
        match self {
            Self::Anywhere => &[(None, None)],
            Self::Across => &[(Some(0), Some(1))],
            Self::Same => &[(Some(0), Some(0))],
            Self::Pairs => &[(Some(0), Some(0)), (Some(1), Some(1))],
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Anywhere => "not pinned",
            Self::Across => "client on CPU 0 and server on CPU 1",
            Self::Same => "both ends on CPU 0",
            Self::Pairs => "one pair of ends on each of CPU 0 and CPU 1",
        }
    }
}

/// One tool, told to do one thing.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) place: Place,
    pub(crate) says: Says,
}

impl Row {
    /// A tool with the command lines of its server and its client.
    pub(crate) fn new(name: impl Into<String>, server: &str, client: impl Into<String>) -> Self {
        let (name, client) = (name.into(), client.into());
        Self { name, server: server.to_owned(), client, place: Place::Anywhere, says: Says::Nothing }
    }

    /// haul with a workload and its options. It warms up within the time that settles: thousands of flows take their time to
    /// have been heard of, and haul adds no rates of flows that were not.
    pub(crate) fn haul(name: impl Into<String>, workload: &str, options: &str, metric: &'static str) -> Self {
        let client =
            format!("{{haul}} {workload} {{at}} --open --warmup 300ms --time {{ms}} --format json {options}");
        Self::new(name, "{haul} serve --listen {at} --open", client).says(Says::Haul(metric))
    }

    /// A bare loop: its server's name and options, and its client's. Clients take the address, and how many seconds.
    pub(crate) fn bare(
        name: impl Into<String>,
        (server, server_options): (&str, &str),
        (client, client_options): (&str, &str),
    ) -> Self {
        Self::new(
            name,
            &format!("{{bare}} {server} {{at}} {server_options}"),
            format!("{{bare}} {client} {{at}} {{seconds}} {client_options}"),
        )
    }

    pub(crate) fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    pub(crate) fn says(self, says: Says) -> Self {
        Self { says, ..self }
    }
}

/// What is divided by what, and what must come of it.
#[derive(Debug, Clone)]
pub(crate) struct Ratio {
    pub(crate) of: String,
    /// One row, or the best of several in each round.
    pub(crate) to: Vec<String>,
    /// The least ratio of rates.
    pub(crate) rate: Option<f64>,
    /// The largest ratio of CPU times for one unit.
    pub(crate) cost: Option<f64>,
}

/// Rows that are run in the same rounds.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) counts: Counts,
    /// Segmentation and joining in the devices of both ends.
    pub(crate) offloads: bool,
    /// How long to let a run settle where the usual time is too short.
    pub(crate) settle: Duration,
    /// The rows of an earlier table under another condition: not for `--quick`.
    pub(crate) again: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) ratios: Vec<Ratio>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, counts: Counts) -> Self {
        Self {
            title: title.into(),
            counts,
            offloads: true,
            settle: Duration::ZERO,
            again: false,
            rows: Vec::new(),
            ratios: Vec::new(),
        }
    }

    pub(crate) fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// The rows whose names contain one of these, and the ratios between them; all, where none is given.
    pub(crate) fn only(mut self, names: &[String]) -> Self {
        if !names.is_empty() {
            self.rows.retain(|row| names.iter().any(|name| row.name.contains(name)));
            let has = |name: &String| self.rows.iter().any(|row| row.name == *name);
            self.ratios.retain(|ratio| has(&ratio.of) && ratio.to.iter().all(has));
        }
        self
    }

    /// The ratio of one row to another, or to the best of others; with bounds for rate and CPU, or without.
    pub(crate) fn ratio(mut self, of: &str, to: &[&str], rate: Option<f64>, cost: Option<f64>) -> Self {
        let to = to.iter().map(|&name| name.to_owned()).collect();
        self.ratios.push(Ratio { of: of.to_owned(), to, rate, cost });
        self
    }

    /// The ratio of haul to the bare loop of the same system calls: as fast and as cheap, within 3 %.
    pub(crate) fn like(self, haul: &str, bare: &str) -> Self {
        self.ratio(haul, &[bare], Some(0.97), Some(1.03))
    }
}

/// What the blanks stand for in one run.
pub(crate) struct Blanks<'a> {
    pub(crate) haul: &'a Path,
    pub(crate) bare: &'a Path,
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    pub(crate) length: Duration,
    pub(crate) payload: &'a str,
    pub(crate) file: &'a Path,
}

impl Blanks<'_> {
    /// The words of a command line, filled in. A path with blanks in it stays one word.
    pub(crate) fn fill(&self, line: &str) -> Vec<String> {
        let seconds = self.length.as_secs_f64();
        let all = [
            ("{haul}", self.haul.display().to_string()),
            ("{bare}", self.bare.display().to_string()),
            ("{host}", self.host.to_string()),
            ("{port}", self.port.to_string()),
            ("{next}", (self.port + 1).to_string()),
            ("{at}", format!("{}:{}", self.host, self.port)),
            ("{seconds}", seconds.to_string()),
            ("{ms}", format!("{}ms", self.length.as_millis())),
            ("{whole}", seconds.ceil().to_string()),
            ("{payload}", self.payload.to_owned()),
            ("{file}", self.file.display().to_string()),
        ];
        let fill =
            |word: &str| all.iter().fold(word.to_owned(), |word, (blank, value)| word.replace(blank, value));
        line.split_whitespace().map(fill).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_are_filled_word_by_word() {
        let blanks = Blanks {
            haul: Path::new("/a path/haul"),
            bare: Path::new("/b"),
            host: "198.18.0.2".parse().expect("an address"),
            port: 5301,
            length: Duration::from_millis(2700),
            payload: "repeat",
            file: Path::new("/tmp/f"),
        };
        let row = Row::haul("haul", "stream", "--payload {payload}", "throughput");
        assert_eq!(
            blanks.fill(&row.server),
            ["/a path/haul", "serve", "--listen", "198.18.0.2:5301", "--open"]
        );
        let client = blanks.fill(&row.client).join(" ");
        assert_eq!(
            client,
            "/a path/haul stream 198.18.0.2:5301 --open --warmup 300ms --time 2700ms --format json --payload repeat"
        );
        assert_eq!(blanks.fill("x -t {whole} -p {port} {seconds}").join(" "), "x -t 3 -p 5301 2.7");
    }
}
