//! Who waits in line: clients that found no session free and ask again.
//!
//! A client in line asks twice a second, each time by a new connection, and nothing tells the server that it will. So a
//! client is remembered by its name and address: the first time it is told to wait is worth a line in the log, the next
//! ones are not, and once it is let in the log says how long it took.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use haul_stats::MonoNanos;

/// After so long without a question a client has gone: six times what one in line takes between two.
const PATIENCE: Duration = Duration::from_secs(3);

/// Clients remembered; of more, those that asked last.
const MOST: usize = 64;

/// The clients in line.
#[derive(Debug, Default)]
pub(super) struct Line(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    name: String,
    address: IpAddr,
    since: MonoNanos,
    asked: MonoNanos,
}

impl Line {
    /// A client was told that no session is free. Whether it has only begun to wait.
    pub(super) fn refused(&mut self, name: &str, from: SocketAddr, now: MonoNanos) -> bool {
        self.forget(now);
        if let Some(known) = self.find(name, from) {
            self.0[known].asked = now;
            return false;
        }
        if self.0.len() >= MOST
            && let Some(oldest) = (0..self.0.len()).min_by_key(|&at| self.0[at].asked)
        {
            self.0.swap_remove(oldest);
        }
        self.0.push(Waiting { name: name.to_owned(), address: from.ip(), since: now, asked: now });
        true
    }

    /// A client was let in. How long it has waited, if it has.
    pub(super) fn admitted(&mut self, name: &str, from: SocketAddr, now: MonoNanos) -> Option<Duration> {
        self.forget(now);
        let known = self.find(name, from)?;
        Some(now.since(self.0.swap_remove(known).since))
    }

    fn find(&self, name: &str, from: SocketAddr) -> Option<usize> {
        self.0.iter().position(|waiting| waiting.name == name && waiting.address == from.ip())
    }

    fn forget(&mut self, now: MonoNanos) {
        self.0.retain(|waiting| now.since(waiting.asked) <= PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_line_is_told_of_when_it_comes_and_when_it_is_let_in() {
        let at = |millis| MonoNanos::default().after(Duration::from_millis(millis));
        let from = |host: u8, port| SocketAddr::from(([10, 0, 0, host], port));
        let mut line = Line::default();
        assert!(line.refused("ada@alpha", from(1, 1000), at(0)));
        assert!(!line.refused("ada@alpha", from(1, 1001), at(500)), "another connection of the same client");
        assert!(line.refused("ada@alpha", from(2, 1000), at(600)), "another host");
        assert!(line.refused("bob@alpha", from(1, 1002), at(700)), "another user");
        let waited = line.admitted("ada@alpha", from(1, 1003), at(1_000));
        assert_eq!(waited, Some(Duration::from_secs(1)));
        assert_eq!(line.admitted("ada@alpha", from(1, 1004), at(1_100)), None, "it has its session");
        assert!(line.refused("bob@alpha", from(1, 1005), at(9_000)), "it had gone");
        for user in 0..1_000 {
            assert!(line.refused(&user.to_string(), from(3, 1), at(9_000)));
        }
        assert_eq!(line.0.len(), MOST);
    }
}
