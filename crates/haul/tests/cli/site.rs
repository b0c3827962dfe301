//! Two hosts and a wire, each host a network namespace of this machine, and a `haul serve` on one of them.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haul_host::ethtool::{self, Features};
use haul_host::link;
use haul_host::netns::Netns;
use haul_host::privilege;
use haul_host::veth_lab::{VethLab, VethOptions};

use crate::process::{Ended, Home, Running};

/// Fails where the tests cannot be what they are.
pub(crate) fn needs_root() {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
}

/// A tool of the system, wherever it is.
pub(crate) fn tool(name: &str, package: &str) -> Command {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found =
        places.iter().map(|place| format!("{place}/{name}")).find(|path| std::path::Path::new(path).exists());
    Command::new(found.unwrap_or_else(|| panic!("this test needs {name}: install {package}")))
}

/// Runs a tool of iproute2 and fails with its own words.
pub(crate) fn iproute(name: &str, arguments: &str) {
    let output = tool(name, "iproute2").args(arguments.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments}: {said}");
}

/// Two hosts. The namespaces have no name: they go with this value, whatever becomes of the test.
pub(crate) struct Site {
    pub(crate) lab: VethLab,
    /// The client's home, and the server's.
    pub(crate) here: Home,
    pub(crate) there: Home,
}

impl Site {
    pub(crate) fn new() -> Self {
        needs_root();
        let lab = VethLab::build(VethOptions::default()).unwrap();
        Self { lab, here: Home::new(), there: Home::new() }
    }

    /// Starts `haul ARGUMENTS` on the client's host.
    pub(crate) fn client(&self, arguments: &[&str]) -> Running {
        self.on_client(self.here.haul(arguments))
    }

    /// Runs `haul ARGUMENTS` on the client's host to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let ended = self.client(arguments).end();
        assert!(ended.is_calm(), "{arguments:?}: {ended:?}");
        ended
    }

    pub(crate) fn on_client(&self, command: Command) -> Running {
        self.lab.client.run(|| Running::start(command)).unwrap()
    }

    /// Starts a server on the other host, on a port of its own.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let listen = SocketAddr::new(self.lab.server_addr, 0).to_string();
        let all: Vec<&str> = ["serve", "--listen", &listen].iter().chain(arguments).copied().collect();
        self.serve_as(self.there.haul(&all))
    }

    pub(crate) fn serve_as(&self, command: Command) -> Server {
        self.lab.server.run(|| Server::start(command)).unwrap()
    }

    pub(crate) fn client_features(&self) -> Features {
        features(&self.lab.client, VethLab::CLIENT_DEVICE)
    }

    pub(crate) fn server_features(&self) -> Features {
        features(&self.lab.server, VethLab::SERVER_DEVICE)
    }

    /// Limits what leaves either host to `rate`, with a queue of `limit` bytes.
    pub(crate) fn shape(&self, rate: &str, limit: &str) {
        for (netns, device) in
            [(&self.lab.client, VethLab::CLIENT_DEVICE), (&self.lab.server, VethLab::SERVER_DEVICE)]
        {
            let shaper = format!("qdisc replace dev {device} root tbf rate {rate} burst 32kb limit {limit}");
            netns.run(|| iproute("tc", &shaper)).unwrap();
        }
    }
}

/// The features of a device.
pub(crate) fn features(netns: &Netns, device: &str) -> Features {
    netns.run(|| ethtool::features(link::link_by_name(device).unwrap().index).unwrap()).unwrap()
}

/// Changes features as somebody else would, behind haul's back.
pub(crate) fn meddle(netns: &Netns, device: &str, feature: &str, on: bool) {
    netns
        .run(|| {
            let link = link::link_by_name(device).unwrap();
            ethtool::set_wanted(link.index, &link.name, &[(feature, on)]).unwrap();
        })
        .unwrap();
}

/// A `haul serve`.
pub(crate) struct Server {
    process: Running,
    pub(crate) addr: SocketAddr,
}

impl Server {
    fn start(command: Command) -> Self {
        let mut process = Running::start(command);
        process.says("listening on ");
        let said = process.said();
        let rest = said.split_once("listening on ").unwrap().1;
        let addr = rest.lines().next().unwrap().parse().unwrap();
        Self { process, addr }
    }

    /// As a target of the client.
    pub(crate) fn target(&self) -> String {
        self.addr.to_string()
    }

    pub(crate) fn says(&mut self, needle: &str) {
        self.process.says(needle);
    }

    pub(crate) fn log(&self) -> String {
        self.process.said()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub(crate) fn end_within(self, bound: Duration) -> Ended {
        self.process.end_within(bound)
    }
}

/// Two hosts whose namespaces have names under `/run/netns` and outlive every haul.
pub(crate) struct Named {
    pub(crate) client: String,
    pub(crate) server: String,
    pub(crate) client_netns: Netns,
    pub(crate) server_netns: Netns,
}

impl Named {
    pub(crate) const CLIENT_DEVICE: &str = "ht-c";
    pub(crate) const SERVER_DEVICE: &str = "ht-s";
    pub(crate) const SERVER_ADDRESS: &str = "198.18.7.2";

    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        needs_root();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("haul-test-{}-{number}-{end}", std::process::id());
        let (client, server) = (name("c"), name("s"));
        iproute("ip", &format!("netns add {client}"));
        // From here on whatever fails takes the names with it.
        let guard = Names([client.clone(), server.clone()]);
        iproute("ip", &format!("netns add {server}"));
        let (near, far) = (Self::CLIENT_DEVICE, Self::SERVER_DEVICE);
        iproute("ip", &format!("-n {client} link add {near} type veth peer name {far} netns {server}"));
        for (name, device, address) in [(&client, near, "198.18.7.1"), (&server, far, Self::SERVER_ADDRESS)] {
            iproute("ip", &format!("-n {name} link set lo up"));
            iproute("ip", &format!("-n {name} addr add {address}/24 dev {device}"));
            iproute("ip", &format!("-n {name} link set {device} up"));
        }
        let open = |name: &str| Netns::open(std::path::Path::new(&format!("/run/netns/{name}"))).unwrap();
        let (client_netns, server_netns) = (open(&client), open(&server));
        std::mem::forget(guard);
        Self { client, server, client_netns, server_netns }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        drop(Names([self.client.clone(), self.server.clone()]));
    }
}

struct Names([String; 2]);

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            // A name that was never made, or that a test removed, needs no removal.
            let _ = tool("ip", "iproute2").args(["netns", "delete", name]).output();
        }
    }
}

/// Two hosts with a router between them, which drops what does not fit into its queue: loss in the network, and not at
/// either end, whose TCP would know of it.
pub(crate) struct Routed {
    pub(crate) client: Netns,
    pub(crate) server: Netns,
    _router: Netns,
}

impl Routed {
    pub(crate) const SERVER_ADDRESS: &str = "198.18.2.2";

    pub(crate) fn new(rate: &str, limit: &str) -> Self {
        needs_root();
        let (client, router, server) =
            (Netns::create().unwrap(), Netns::create().unwrap(), Netns::create().unwrap());
        for (host, network, last, to_router, to_host) in
            [(&client, 1, 1, "c", "to-c"), (&server, 2, 2, "s", "to-s")]
        {
            host.run(|| {
                link::create_veth(to_router, to_host, &router, haul_stats::ByteCount(1500)).unwrap();
                iproute("ip", &format!("addr add 198.18.{network}.{last}/24 dev {to_router}"));
                iproute("ip", &format!("link set {to_router} up"));
            })
            .unwrap();
            router
                .run(|| {
                    fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
                    iproute("ip", &format!("addr add 198.18.{network}.254/24 dev {to_host}"));
                    iproute("ip", &format!("link set {to_host} up"));
                    let shaper =
                        format!("qdisc replace dev {to_host} root tbf rate {rate} burst 16kb limit {limit}");
                    iproute("tc", &shaper);
                })
                .unwrap();
            host.run(|| iproute("ip", &format!("route add default via 198.18.{network}.254"))).unwrap();
        }
        Self { client, server, _router: router }
    }
}

/// Another namespace, with a device that has these addresses.
pub(crate) fn host_with(addresses: &[IpAddr]) -> Netns {
    needs_root();
    let netns = Netns::create().unwrap();
    netns
        .run(|| {
            link::set_up(link::link_by_name("lo").unwrap().index, true).unwrap();
            link::create_veth("va", "vb", &Netns::current().unwrap(), haul_stats::ByteCount(1500)).unwrap();
            for name in ["va", "vb"] {
                link::set_up(link::link_by_name(name).unwrap().index, true).unwrap();
            }
            for address in addresses {
                link::add_address(link::link_by_name("va").unwrap().index, *address, 24).unwrap();
            }
        })
        .unwrap();
    netns
}

/// Shows what a slow test measured.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
