//! Where packets are lost in a lab, and that the counters say so, each its own.

mod common;

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Instant;

use common::{BOUND, drain, drops, lab, tc};
use haul_host::link;
use haul_host::probe::NetCounters;
use haul_host::socket::{self, Flags, Requested, udp};
use haul_host::veth_lab::VethLab;
use haul_stats::ByteCount;

/// Many times what any buffer here holds.
const SENT: u64 = 700;

/// Both ends' counters.
struct Snapshot {
    client: NetCounters,
    server: NetCounters,
}

impl Snapshot {
    fn take(lab: &VethLab) -> Self {
        Self {
            client: lab.client.run(|| NetCounters::read(&lab.client_dev)).expect("run"),
            server: lab.server.run(|| NetCounters::read(&lab.server_dev)).expect("run"),
        }
    }

    /// What was counted since, at both ends.
    fn window(&self, lab: &VethLab) -> Self {
        let now = Self::take(lab);
        Self { client: now.client.since(&self.client), server: now.server.since(&self.server) }
    }
}

fn addresses(lab: &VethLab) -> [(IpAddr, IpAddr); 2] {
    let six = |address: Option<IpAddr>| address.expect("this kernel has IPv6");
    [(lab.server_addr, lab.client_addr), (six(lab.server_addr6), six(lab.client_addr6))]
}

fn pair(lab: &VethLab, (to, from): (IpAddr, IpAddr), requested: &Requested) -> (UdpSocket, UdpSocket) {
    let server = lab.server.run(|| udp::bind((to, 0).into(), requested)).expect("run").expect("bind");
    let target = server.local_addr().expect("address");
    let client = || udp::connected((from, 0).into(), target, requested);
    (lab.client.run(client).expect("run").expect("client"), server)
}

#[test]
fn every_counter_of_a_lab_is_there_or_has_its_reason_and_survives_json() {
    let lab = lab(1500);
    let whole = Snapshot::take(&lab).server;
    assert_eq!(whole.absent.len(), 0, "this kernel has them all: {:?}", whole.absent);
    assert_eq!(whole.device, "haul-s");
    let root = whole.root_qdisc().expect("a device has a root qdisc");
    assert_eq!((root.kind.as_str(), root.drops), ("noqueue", Some(0)));
    assert!(whole.softnet_dropped.is_some() && whole.udp6.in_csum_errors == Some(0), "{whole:?}");
    let json = serde_json::to_string(&whole).expect("JSON");
    assert_eq!(serde_json::from_str::<NetCounters>(&json).expect("back"), whole);

    lab.server.run(|| link::delete(lab.server_dev.index)).expect("run").expect("delete");
    let gone = Snapshot::take(&lab).server;
    assert_eq!((gone.link.rx_packets, gone.root_qdisc()), (None, None));
    assert!(gone.absent["link"].contains("cannot read the counters of device number"), "{:?}", gone.absent);
    let window = gone.since(&whole);
    assert_eq!(window.link.rx_packets, None);
    assert!(window.absent.contains_key("link") && window.udp4.in_datagrams == Some(0), "{window:?}");
}

#[test]
fn a_full_socket_and_an_absent_one_are_told_apart_and_nothing_else_moves() {
    let lab = lab(1500);
    for (index, addresses) in addresses(&lab).into_iter().enumerate() {
        let small = Requested { rcvbuf: Some(ByteCount(16 << 10)), ..Requested::default() };
        let (client, server) = pair(&lab, addresses, &small);
        let before = Snapshot::take(&lab);
        for _ in 0..SENT {
            socket::send(client.as_fd(), &[7; 1000]).expect("send");
        }
        let start = Instant::now();
        let (mut got, mut lost) = (0, 0);
        while got + lost < SENT && start.elapsed() < BOUND {
            got += drain(&server);
            lost = drops(&server);
        }
        let window = before.window(&lab);
        let of = |counters: &NetCounters| if index == 0 { counters.udp4 } else { counters.udp6 };
        let (sender, receiver) = (of(&window.client), of(&window.server));
        assert!(lost > SENT / 2, "{lost} lost");
        assert_eq!(got + lost, SENT);
        assert_eq!((receiver.in_datagrams, receiver.rcvbuf_errors), (Some(got), Some(lost)));
        assert_eq!(
            (receiver.in_errors, receiver.no_ports, receiver.in_csum_errors),
            (Some(lost), Some(0), Some(0))
        );
        assert_eq!((sender.out_datagrams, sender.sndbuf_errors), (Some(SENT), Some(0)));
        let other = if index == 0 { window.server.udp6 } else { window.server.udp4 };
        assert_eq!((other.in_datagrams, other.in_errors), (Some(0), Some(0)));
        assert!(window.client.link.tx_packets >= Some(SENT) && window.server.link.rx_packets >= Some(SENT));
        assert!(window.client.link.tx_bytes >= Some(SENT * 1000), "{:?}", window.client.link);
        assert_eq!((window.client.link.tx_dropped, window.server.link.rx_dropped), (Some(0), Some(0)));

        // The socket goes, and with it whoever waits at its port.
        drop(server);
        let before = Snapshot::take(&lab);
        // An ICMP message makes every second send fail.
        let sent = (0..20).filter(|_| socket::send(client.as_fd(), &[7; 10]).is_ok()).count() as u64;
        let receiver = of(&before.window(&lab).server);
        assert_eq!((receiver.no_ports, receiver.rcvbuf_errors), (Some(sent), Some(0)));
    }
}

#[test]
fn fragments_are_counted_where_they_are_made_and_where_they_are_put_together() {
    let lab = lab(1500);
    for (index, addresses) in addresses(&lab).into_iter().enumerate() {
        let (client, server) = pair(&lab, addresses, &Requested::default());
        let before = Snapshot::take(&lab);
        socket::send(client.as_fd(), &[7; 4000]).expect("send");
        socket::set_timeouts(&server, Some(BOUND), None).expect("bound");
        assert_eq!(socket::recv(server.as_fd(), &mut [0; 5000], Flags::NONE).expect("receive"), 4000);
        let window = before.window(&lab);
        let of = |counters: &NetCounters| if index == 0 { counters.ip4 } else { counters.ip6 };
        let (sender, receiver) = (of(&window.client), of(&window.server));
        assert_eq!((sender.frag_oks, sender.frag_creates, sender.frag_fails), (Some(1), Some(3), Some(0)));
        assert_eq!(
            (receiver.reasm_reqds, receiver.reasm_oks, receiver.reasm_fails),
            (Some(3), Some(1), Some(0))
        );
        assert!(receiver.in_receives >= Some(3) && receiver.in_discards == Some(0), "{receiver:?}");
    }
}

#[test]
fn a_short_queue_at_the_sender_is_its_qdiscs_loss_and_not_the_receivers() {
    let lab = lab(1500);
    tc(&lab, "qdisc add dev haul-c root tbf rate 10mbit burst 5kb limit 8kb");
    for (index, addresses) in addresses(&lab).into_iter().enumerate() {
        let (client, server) = pair(&lab, addresses, &Requested::default());
        let before = Snapshot::take(&lab);
        for _ in 0..SENT {
            // The kernel takes what it then drops: nobody has asked to be told (IP_RECVERR).
            assert_eq!(socket::send(client.as_fd(), &[7; 1000]).expect("send"), 1000);
        }
        let start = Instant::now();
        let (mut got, mut lost) = (0, 0);
        let mut window = before.window(&lab);
        while got + lost < SENT && start.elapsed() < BOUND {
            got += drain(&server);
            window = before.window(&lab);
            lost = window.client.root_qdisc().expect("root").drops.expect("drops");
        }
        assert_eq!(got + lost, SENT, "{got} received, {lost} lost");
        assert!(lost > SENT / 2, "{lost} lost");
        let root = window.client.root_qdisc().expect("root");
        assert_eq!((root.kind.as_str(), root.backlog_packets), ("tbf", Some(0)), "{root:?}");
        assert!(root.packets >= Some(got) && root.overlimits > Some(0), "{root:?}");
        let of = |counters: &NetCounters| if index == 0 { counters.udp4 } else { counters.udp6 };
        assert_eq!(of(&window.client).sndbuf_errors, Some(lost), "UDP knows of it too");
        assert_eq!((of(&window.server).in_datagrams, of(&window.server).rcvbuf_errors), (Some(got), Some(0)));
        assert_eq!(drops(&server), 0);
    }
    // What waits is not a count, and an own qdisc in its place begins at 0.
    let before = Snapshot::take(&lab);
    tc(&lab, "qdisc del dev haul-c root");
    let window = before.window(&lab).client;
    assert_eq!(window.root_qdisc().map(|root| (root.kind.as_str(), root.drops)), Some(("noqueue", None)));
    assert!(
        window.absent["qdiscs.noqueue@ffffffff"].contains("not there at the start"),
        "{:?}",
        window.absent
    );
}
