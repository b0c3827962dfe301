//! Devices that stand on others: what the fingerprint says of those below the one the route names.

use std::process::Command;

use haul_host::link;
use haul_host::privilege;
use haul_host::probe::environment::Fingerprint;
use haul_host::veth_lab::{VethLab, VethOptions};

/// Runs iproute2's `ip` in the client's namespace; false where this kernel has no such kind of device.
fn ip(lab: &VethLab, arguments: &str) -> bool {
    let run = || Command::new("ip").args(arguments.split(' ')).output();
    let output = lab.client.run(run).expect("run").expect("this test needs ip: install iproute2");
    let said = String::from_utf8_lossy(&output.stderr);
    let unknown = said.contains("Unknown device type");
    assert!(output.status.success() || unknown, "ip {arguments}: {said}");
    !unknown
}

fn below(lab: &VethLab, device: &str) -> Vec<String> {
    let names = || link::below(link::link_by_name(device)?.index);
    let found = lab.client.run(names).expect("run").expect("devices");
    found.into_iter().map(|link| link.name).collect()
}

#[test]
fn a_bridge_and_a_vlan_are_followed_to_what_they_stand_on() {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    let lab = VethLab::build(VethOptions::default()).expect("a lab");
    let nic = VethLab::CLIENT_DEVICE;
    assert!(below(&lab, nic).is_empty(), "the other end of a veth is no part of it");
    // A pair of which both ends are here, one of them a port of a bridge.
    assert!(ip(&lab, "link add port type veth peer name beyond"));
    assert!(ip(&lab, "link add joined type bridge"), "this test needs bridges");
    ip(&lab, "link set port master joined");
    let mut expected = vec!["port"];
    // Where the kernel has them: a vlan as another port, else the device itself.
    if ip(&lab, &format!("link add link {nic} name tagged type vlan id 7")) {
        assert_eq!(below(&lab, "tagged"), [nic]);
        ip(&lab, "link set tagged master joined");
        expected.extend(["tagged", nic]);
    } else {
        ip(&lab, &format!("link set {nic} master joined"));
        expected.push(nic);
    }
    let mut parts = below(&lab, "joined");
    parts.sort();
    expected.sort_unstable();
    assert_eq!(parts, expected, "the ports, and what a port stands on; not the other end of one");
    assert!(below(&lab, "port").is_empty());

    let facts = || Fingerprint::collect(&link::link_by_name("joined").expect("a bridge"));
    let facts = lab.client.run(facts).expect("run");
    assert!(
        facts.value("path").is_some_and(|path| path.starts_with("joined, ")),
        "{:?}",
        facts.value("path")
    );
    assert_eq!(facts.value("path.port.driver"), Some("veth"));
    // What merges packets on a port is told, whatever the bridge says of itself.
    let gro = facts.value("path.port.feature.rx-gro").unwrap_or_default();
    assert!(gro.starts_with("on") || gro.starts_with("off"), "{gro}");
    assert_eq!(facts.value("path.port.mtu"), Some("1500"));
    assert!(facts.value("path.beyond.mtu").is_none());
}
