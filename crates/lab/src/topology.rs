//! The place an experiment runs in: a lab made for it, a server in this process, or another host.
//!
//! A [`Topology`] is everything that exists only for the experiment. In the lab that is two network namespaces, the wire
//! between them and a server thread in one of them; on loopback the server thread alone; for another host nothing.
//! Dropping it takes it all away again and waits for the server no longer than [`TEARDOWN`]; after `kill -9` the kernel
//! does the same, since the namespaces have no name. The server in this process has a random key that never leaves it, so
//! nobody else on this host can use it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haul_host::clock;
use haul_host::netns::Netns;
use haul_host::privilege;
use haul_host::settings::Reach;
use haul_host::signal::{Signal, Stop};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;
use haul_wire::{Key, Trust};
use haul_workload::WorkloadError;
use haul_workload::server::{DEFAULT_PORT, ServeEvent, ServeOptions, Server};
use haul_workload::session::Dial;
use rand::TryRng as _;

use crate::error::LabError;

/// How long the server thread may take to end its sessions and put settings back. A link that renegotiates takes
/// seconds; a veth takes milliseconds.
pub const TEARDOWN: Duration = Duration::from_secs(5);

/// The smallest MTU that carries both IP versions (RFC 8200, section 5), and the largest a veth takes.
const MTU: std::ops::RangeInclusive<u64> = 1280..=65_535;

/// The name of the server's thread, as `top -H` shows it.
const SERVER_THREAD: &str = "haul-server";

/// Where to measure to, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Another host, or a server of this one's.
    Remote {
        /// Name or address.
        host: String,
        /// Port of its control protocol.
        port: u16,
    },
    /// A server inside this process, over the loopback device.
    Loopback,
    /// Two private network namespaces.
    Lab {
        /// Largest packet on the wire between them.
        mtu: ByteCount,
        /// Whether the ends talk IPv6.
        ipv6: bool,
    },
}

impl FromStr for Target {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let bad = |why: String| LabError::Target { text: text.to_owned(), why };
        let remote = |host: &str, port: &str| {
            let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                bad(format!("'{port}' is no port: give 1 to 65535, or leave it out for {DEFAULT_PORT}"))
            })?;
            Ok(Self::Remote { host: host.to_owned(), port })
        };
        if let Some(rest) = text.strip_prefix('[') {
            let wanted = || bad("write an IPv6 address with a port as [2001:db8::1]:4285".to_owned());
            let (host, port) = rest.split_once(']').ok_or_else(wanted)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wanted())?;
            return match port.strip_prefix(':') {
                Some(port) => remote(host, port),
                None if port.is_empty() => Ok(Self::Remote { host: host.to_owned(), port: DEFAULT_PORT }),
                None => Err(wanted()),
            };
        }
        if text.parse::<IpAddr>().is_ok() {
            return Ok(Self::Remote { host: text.to_owned(), port: DEFAULT_PORT });
        }
        match text.split_once(':') {
            _ if text == "loopback" => Ok(Self::Loopback),
            _ if text == "lab" => Ok(Self::lab()),
            Some(("lab", options)) => lab_options(options).map_err(bad),
            Some(("loopback", _)) => Err(bad("loopback takes no options and no port".to_owned())),
            Some((host, port)) if is_host(host) => remote(host, port),
            None if is_host(text) => Ok(Self::Remote { host: text.to_owned(), port: DEFAULT_PORT }),
            _ => Err(bad("give HOST[:PORT], [IPV6]:PORT, loopback, or lab[:mtu=9000]".to_owned())),
        }
    }
}

impl Target {
    /// The lab as it is made unless asked otherwise.
    #[must_use]
    pub fn lab() -> Self {
        Self::Lab { mtu: VethOptions::default().mtu, ipv6: false }
    }

    /// Whether making it takes root, of the host or of a user namespace ([`privilege::enter_user_namespace`], which must
    /// be called before the first thread).
    #[must_use]
    pub fn needs_namespaces(&self) -> bool {
        matches!(self, Self::Lab { .. })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Remote { host, port } => write!(f, "{host}:{port}"),
            Self::Loopback => f.write_str("loopback"),
            Self::Lab { mtu, ipv6 } => write!(f, "lab:mtu={}{}", mtu.0, if *ipv6 { ",ipv6" } else { "" }),
        }
    }
}

/// Whether a text can be a host name: what resolvers take, underscores included.
fn is_host(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(fits)
}

fn lab_options(options: &str) -> Result<Target, String> {
    let (mut mtu, mut ipv6) = (VethOptions::default().mtu, false);
    let mut seen: Vec<&str> = Vec::new();
    for option in options.split(',') {
        let name = option.split('=').next().unwrap_or_default();
        if seen.contains(&name) {
            return Err(format!("{name} is given twice"));
        }
        seen.push(name);
        match option.split_once('=') {
            Some(("mtu", size)) => {
                let wanted = || format!("'{size}' is no MTU: give {} to {}", MTU.start(), MTU.end());
                mtu = size.parse().ok().filter(|mtu: &ByteCount| MTU.contains(&mtu.0)).ok_or_else(wanted)?;
            }
            None if option == "ipv6" => ipv6 = true,
            _ => return Err(format!("the lab has no option '{option}': its options are mtu=SIZE and ipv6")),
        }
    }
    Ok(Target::Lab { mtu, ipv6 })
}

/// A server thread of this process.
struct Resident {
    stop: Stop,
    /// Why it turned a connection away last: a server short of descriptors may have none left to say so to its client.
    turned_away: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<Result<(), WorkloadError>>>,
}

impl Resident {
    /// Starts a server on `address`, in `netns` where one is given, and says how to reach it.
    fn start(
        address: IpAddr,
        netns: Option<&Netns>,
        label: &str,
        journal: PathBuf,
    ) -> Result<(Self, Dial), LabError> {
        let mut bytes = [0; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|error| LabError::Setup {
            what: "the server of this process".to_owned(),
            why: format!("the system gave no random bytes for its key: {error}"),
        })?;
        let key = Key::from_random(bytes);
        let options = ServeOptions {
            key: Some(key.clone()),
            // In a lab the server's host is a namespace of its own. On loopback it is this host, with one device for
            // both ends, which the client changes.
            allow_settings: netns.is_some().then_some(Reach::Anything),
            // A session that is being left may still hold its slot when the next one comes.
            max_sessions: 4,
            journal,
        };
        let listen = SocketAddr::new(address, 0);
        let bind = || Server::bind(listen).and_then(|server| Ok((server.local_addr()?, server)));
        let (addr, server) = match netns {
            Some(netns) => netns.run(bind)?,
            None => bind(),
        }?;
        let stop = Stop::never()?;
        let server_stop = stop.clone();
        let turned_away = Arc::<Mutex<Option<String>>>::default();
        let noted = Arc::clone(&turned_away);
        // All else it has to say concerns this process's own client, which is told by its session.
        let observe = move |event: &ServeEvent| {
            if let ServeEvent::TurnedAway { reason, .. } = event {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
            }
        };
        let died = Arc::clone(&turned_away);
        let work = move || {
            server.run(options, &server_stop, Arc::new(observe)).inspect_err(|error| {
                *died.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            })
        };
        let thread = match netns {
            Some(netns) => netns.spawn(SERVER_THREAD, work)?,
            None => thread::Builder::new().name(SERVER_THREAD.to_owned()).spawn(work).map_err(|error| {
                LabError::Setup {
                    what: "the server of this process".to_owned(),
                    why: format!("its thread cannot be started: {error}"),
                }
            })?,
        };
        Ok((
            Self { stop, turned_away, thread: Some(thread) },
            Dial { addr, trust: Trust::Key(key), label: label.to_owned() },
        ))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.stop.request(Signal::Term);
        let Some(thread) = self.thread.take() else { return };
        let until = clock::now().after(TEARDOWN);
        while !thread.is_finished() && clock::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // How it ended no longer matters: the sessions it had are over.
            let _ = thread.join();
        }
    }
}

/// What exists for one experiment.
pub struct Topology {
    // In this order they are dropped: the server ends before the namespaces its threads are in lose their last name.
    resident: Option<Resident>,
    lab: Option<VethLab>,
    dials: Vec<Dial>,
    target: Target,
    journal: PathBuf,
}

impl Topology {
    /// Makes the place. `trust` is for another host's server; a server of this process has a key of its own. What either
    /// end of this process changes is journalled in the directory `journal` ([`haul_host::journal::directory`]).
    ///
    /// # Errors
    /// Where a name has no address, or a namespace or a server cannot be made here.
    pub fn open(target: &Target, trust: &Trust, journal: &Path) -> Result<Self, LabError> {
        let label = target.to_string();
        let (resident, lab, dials) = match target {
            Target::Remote { host, port } => (None, None, resolve(host, *port, trust, &label)?),
            Target::Loopback => {
                let (resident, dial) =
                    Resident::start(Ipv4Addr::LOCALHOST.into(), None, &label, journal.to_owned())?;
                (Some(resident), None, vec![dial])
            }
            Target::Lab { mtu, ipv6 } => {
                if !privilege::effective_root() {
                    return Err(LabError::Setup {
                        what: "the lab".to_owned(),
                        why: "it takes root, or a user namespace entered as the process starts".to_owned(),
                    });
                }
                let lab = VethLab::build(VethOptions { mtu: *mtu }).map_err(|error| LabError::Setup {
                    what: "the lab".to_owned(),
                    why: error.to_string(),
                })?;
                let address = if *ipv6 {
                    lab.server_addr6.ok_or_else(|| LabError::Setup {
                        what: "the lab with IPv6".to_owned(),
                        why: "this kernel has no IPv6, or it is disabled: leave out ipv6".to_owned(),
                    })?
                } else {
                    lab.server_addr
                };
                let (resident, dial) =
                    Resident::start(address, Some(&lab.server), &label, journal.to_owned())?;
                (Some(resident), Some(lab), vec![dial])
            }
        };
        Ok(Self { resident, lab, dials, target: target.clone(), journal: journal.to_owned() })
    }

    /// The target it was made for.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Where this process keeps its journals.
    #[must_use]
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// The addresses of the server, to be tried in this order.
    #[must_use]
    pub fn dials(&self) -> &[Dial] {
        &self.dials
    }

    /// Runs `work` where the client lives: in the lab on a thread in its namespace, else right here.
    pub(crate) fn as_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match &self.lab {
            Some(lab) => Ok(lab.client.run(work)?),
            None => Ok(work()),
        }
    }

    /// Why the server of this process turned a connection away, if it did since this was last asked. A server that could
    /// not even start closes its door a moment before it says so.
    pub(crate) fn turned_away(&self) -> Option<String> {
        const MOMENT: Duration = Duration::from_millis(100);
        let noted = &self.resident.as_ref()?.turned_away;
        let until = clock::now().after(MOMENT);
        loop {
            let reason = noted.lock().unwrap_or_else(PoisonError::into_inner).take();
            if reason.is_some() || clock::now() >= until {
                return reason;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the server runs in this process.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.resident.is_some()
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("target", &self.target)
            .field("dials", &self.dials)
            .finish_non_exhaustive()
    }
}

fn resolve(host: &str, port: u16, trust: &Trust, label: &str) -> Result<Vec<Dial>, LabError> {
    let failed = |source| LabError::Resolve { host: host.to_owned(), source };
    let dials: Vec<Dial> = (host, port)
        .to_socket_addrs()
        .map_err(failed)?
        .map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()))
        .map(|addr| Dial { addr, trust: trust.clone(), label: label.to_owned() })
        .collect();
    if dials.is_empty() {
        return Err(failed(std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address")));
    }
    Ok(dials)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remote(host: &str, port: u16) -> Target {
        Target::Remote { host: host.to_owned(), port }
    }

    #[test]
    fn targets_are_read_and_written_back() {
        let lab = |mtu, ipv6| Target::Lab { mtu: ByteCount(mtu), ipv6 };
        for (text, expected) in [
            ("loopback", Target::Loopback),
            ("lab", lab(1500, false)),
            ("lab:mtu=9000", lab(9000, false)),
            ("lab:ipv6,mtu=1280", lab(1280, true)),
            ("db1.example", remote("db1.example", 4285)),
            ("db1.example:5000", remote("db1.example", 5000)),
            ("192.0.2.1", remote("192.0.2.1", 4285)),
            ("192.0.2.1:80", remote("192.0.2.1", 80)),
            ("2001:db8::1", remote("2001:db8::1", 4285)),
            ("[2001:db8::1]:80", remote("2001:db8::1", 80)),
            ("[2001:db8::1]", remote("2001:db8::1", 4285)),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target, expected, "{text}");
            assert_eq!(target.to_string().parse::<Target>().unwrap(), expected, "{text} as {target}");
        }
    }

    #[test]
    fn a_target_that_cannot_be_read_names_the_text_and_the_remedy() {
        for (text, needle) in [
            ("", "HOST[:PORT]"),
            ("-x", "HOST[:PORT]"),
            ("a b", "HOST[:PORT]"),
            ("host:0", "1 to 65535"),
            ("host:65536", "1 to 65535"),
            ("host:http", "1 to 65535"),
            ("loopback:80", "no options"),
            ("lab:mtu=100", "1280 to 65535"),
            ("lab:mtu=", "1280 to 65535"),
            ("lab:mtu=1500,mtu=9000", "twice"),
            ("lab:speed=1", "mtu=SIZE and ipv6"),
            ("[::1", "[2001:db8::1]:4285"),
            ("[host]:80", "[2001:db8::1]:4285"),
            ("[::1]x", "[2001:db8::1]:4285"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error.exit(), 2, "{text}");
            let error = error.to_string();
            assert!(error.contains(needle) && error.contains(&format!("'{text}'")), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_without_an_address_is_the_peers_fault() {
        let error =
            Topology::open(&remote("no-such-host.invalid", 1), &Trust::Open, Path::new("/nonexistent"))
                .unwrap_err();
        assert_eq!(error.exit(), 4);
        assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_reads_back(text in "(\\PC{0,20}|[a-z0-9.:\\[\\]=,-]{0,20})") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
            }
        }
    }
}
