//! What the tests of datagrams and of their loss have in common.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use haul_host::privilege;
use haul_host::socket::{self, Flags, udp};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;

pub(crate) const BOUND: Duration = Duration::from_secs(5);

pub(crate) fn lab(mtu: u64) -> VethLab {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    VethLab::build(VethOptions { mtu: ByteCount(mtu) }).expect("a lab")
}

pub(crate) fn drops(socket: &UdpSocket) -> u64 {
    udp::drops(socket.as_fd()).expect("SO_MEMINFO")
}

/// Takes what is there, and says how many datagrams.
pub(crate) fn drain(socket: &UdpSocket) -> u64 {
    let mut buffer = [0; 2048];
    let mut count = 0;
    while socket::recv(socket.as_fd(), &mut buffer, Flags::DONTWAIT).is_ok() {
        count += 1;
    }
    count
}

/// Runs iproute2's `tc` in the client's namespace.
pub(crate) fn tc(lab: &VethLab, arguments: &str) {
    let places = ["/usr/sbin/tc", "/sbin/tc", "/usr/bin/tc"];
    let place = places.into_iter().find(|place| Path::new(place).exists());
    let place = place.expect("this test needs tc: install iproute2");
    let run = || Command::new(place).args(arguments.split(' ')).output();
    let output = lab.client.run(run).expect("run").expect("run tc");
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
