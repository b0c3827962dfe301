//! The file as kernels of several architectures write it.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::super::softnet::Softnet;
use super::*;

/// Linux 6.18, x86-64, a virtual machine.
const X86: &str = "\
           CPU0       CPU1       
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      12365 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:       9802          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 16:          5          6   IO-APIC  16-fasteoi   i801_smbus, eth7, ehci_hcd:usb1
LOC:   49585077   47173586   Local timer interrupts
CAL:   25460432   33629047   Function call interrupts
ERR:          0
MIS:          0
";

/// Linux 6.1, arm64 with the third CPU off.
const ARM: &str = "\
           CPU0       CPU1       CPU3       
 11:   15384741   13285914    9920120     GICv3  27 Level     arch_timer
 14:          0          0          0     GICv3  23 Level     arm-pmu
 71:    4294000          0         12   ITS-MSI 524288 Edge      eth0-rx-0
 72:          0     811222          0   ITS-MSI 524289 Edge      eth0-tx-0
IPI0:   4012345    5012345    3012345       Rescheduling interrupts
IPI1:    712345     612345     512345       Function call interrupts
Err:          0
";

/// Linux 6.6, riscv64.
const RISCV: &str = "\
           CPU0       CPU1       CPU2       CPU3
 10:      54321      44321      34321      24321  RISC-V INTC   5 Edge      riscv-timer
 12:        999          0          0          0  SiFive PLIC  10 Edge      ttyS0
 13:         77          1          0          0  SiFive PLIC  53 Edge      end0
IPI0:       123        223        323        423  Rescheduling interrupts
";

fn table(text: &str) -> Table {
    Table::parse(text).expect("a table")
}

fn line<'a>(table: &'a Table, label: &str) -> &'a Line {
    table.lines.iter().find(|line| line.label == label).expect("the line")
}

fn by_name(name: &str) -> Owner {
    Owner { names: vec![name.to_owned()], what: name.to_owned(), ..Owner::default() }
}

#[test]
fn lines_are_read_on_every_architecture_and_counts_of_mistakes_are_none_of_them() {
    for (name, text, cpus, lines, label, action) in [
        ("x86", X86, vec![0, 1], 7, "38", "virtio2-input.0"),
        ("x86, shared", X86, vec![0, 1], 7, "16", "i801_smbus, eth7, ehci_hcd:usb1"),
        ("arm64", ARM, vec![0, 1, 3], 6, "71", "eth0-rx-0"),
        ("riscv64", RISCV, vec![0, 1, 2, 3], 4, "10", "riscv-timer"),
    ] {
        let table = table(text);
        assert_eq!((table.cpus.clone(), table.lines.len()), (cpus, lines), "{name}");
        assert_eq!(line(&table, label).actions(), action, "{name}");
    }
    // On one CPU a count of mistakes looks like any other line.
    let one =
        table("           CPU0\n  1:   7  IO-APIC   1-edge   i8042\nERR:   3\nNMI:   4   Non-maskable\n");
    assert_eq!(one.lines.iter().map(|line| line.label.as_str()).collect::<Vec<_>>(), ["1", "NMI"]);
    for broken in ["", "\n", "CPUx\n1: 2\n", "hello\n", "CPU0 CPU\n"] {
        assert_eq!(Table::parse(broken), None, "{broken:?}");
    }
}

#[test]
fn a_host_of_hundreds_of_cpus_and_queues_is_told_in_bounded_space() {
    let of = |each: u64| {
        let mut text = String::new();
        (0..512).filter(|cpu| cpu % 7 != 3).for_each(|cpu| write!(text, "CPU{cpu} ").expect("text"));
        text.push('\n');
        for irq in 0..1500 {
            write!(text, "{irq}:").expect("text");
            (0..512).filter(|cpu| cpu % 7 != 3).for_each(|cpu| {
                write!(text, " {}", if cpu == irq % 512 { each } else { 0 }).expect("text");
            });
            let name =
                if irq < 700 { format!("mlx5_comp{irq}@pci:0000:3b:00.0") } else { format!("nvme0q{irq}") };
            writeln!(text, " IR-PCI-MSIX-0000:3b:00.0 {irq}-edge {name}").expect("text");
        }
        text
    };
    let owner = Owner {
        numbers: (0..700).map(|irq| irq.to_string()).collect(),
        by: "msi_irqs".to_owned(),
        ..Owner::default()
    };
    let used = table(&of(9)).since(&table(&of(2)), &owner).expect("the same CPUs");
    // One CPU in seven is off, and its interrupts nowhere.
    let on = |irq: &u64| irq % 512 % 7 != 3;
    assert_eq!(used.total, 7 * (0..1500).filter(on).count() as u64);
    assert_eq!((used.nic, used.devices), (Some(7 * (0..700).filter(on).count() as u64), used.total));
    assert_eq!((used.nic_lines.len(), used.lines.len()), (MOST_NIC_LINES, MOST_LINES));
    assert!(used.untold > 800, "{}", used.untold);
    let comp9 = &used.nic_lines[9];
    assert_eq!((comp9.queue.as_deref(), comp9.busiest_cpu, comp9.cpus, comp9.busiest), (Some("9"), 9, 1, 7));
    assert!(serde_json::to_string(&used).expect("JSON").len() < 200_000);
}

#[test]
fn the_lines_of_a_nic_are_found_by_number_or_by_a_name_of_their_own() {
    let later = X86
        .replace("12365", "12400")
        .replace("9802", "9803")
        .replace("          5          6", "          9          6");
    let numbered = Owner {
        numbers: ["37", "38", "39"].map(str::to_owned).into(),
        by: "msi_irqs".to_owned(),
        ..Owner::default()
    };
    let window = |owner: &Owner| table(&later).since(&table(X86), owner).expect("the same CPUs");
    let used = window(&numbered);
    assert_eq!((used.total, used.devices, used.nic), (40, 40, Some(36)));
    let queues: Vec<_> = used.nic_lines.iter().map(|line| (line.queue.as_deref(), line.count)).collect();
    assert_eq!(queues, [(None, 0), (Some("rx 0"), 35), (Some("tx 0"), 1)]);
    assert_eq!(used.lines.iter().map(|line| line.line.as_str()).collect::<Vec<_>>(), ["16"]);
    assert_eq!(used.nic_by, "msi_irqs");

    for (name, found) in
        [("eth7", Some(4)), ("eth", None), ("th7", None), ("virtio2", Some(36)), ("veth0", None)]
    {
        let used = window(&by_name(name));
        assert_eq!(used.nic, found, "{name}");
        assert_eq!(used.nic_by.contains("no interrupt line of its own"), found.is_none(), "{name}: {used:?}");
    }
    // eth1 is no part of eth10.
    let two = "CPU0\n1: 5 MSI 1-edge eth10-rx-0\n2: 6 MSI 2-edge eth1-rx-0\n";
    let used = table(two).since(&Table { cpus: vec![0], lines: Vec::new() }, &by_name("eth1")).expect("used");
    assert_eq!(used.nic, Some(6));
}

#[test]
fn the_queue_of_a_line_is_what_its_driver_calls_it_and_nothing_where_it_says_nothing() {
    for (action, queue) in [
        ("eth0-rx-3", Some("rx 3")),
        ("eth0-Tx-12", Some("tx 12")),
        ("eth0-TxRx-5", Some("5")),
        ("i40e-ens1f0-TxRx-63", Some("63")),
        ("mlx5_comp7@pci:0000:01:00.0", Some("7")),
        ("virtio2-input.0", Some("rx 0")),
        ("virtio2-output.1", Some("tx 1")),
        ("ens5-Tx-Rx-2", Some("2")),
        ("gve-ntfy-block.4", Some("4")),
        ("eth0", None),
        ("eth0-q2", Some("2")),
        ("virtio2-config", None),
        ("mlx5_async0@pci:0000:01:00.0", None),
        ("nvme0q-99999", None),
        ("", None),
        ("7", None),
    ] {
        assert_eq!(queue_of(action).as_deref(), queue, "{action}");
    }
}

#[test]
fn what_went_backwards_is_named_and_left_out_and_never_huge() {
    // Unplugged and back: its line begins at 0 again.
    let reset = X86.replace("      12365", "          3");
    let numbered = Owner { numbers: ["38".to_owned()].into(), by: "msi_irqs".to_owned(), ..Owner::default() };
    let used = table(&reset).since(&table(X86), &numbered).expect("the same CPUs");
    assert_eq!((used.total, used.nic, used.backwards.as_slice()), (0, None, &["38".to_owned()][..]));
    assert!(used.nic_by.contains("backwards"), "{used:?}");
    // Gone altogether.
    let gone: String =
        X86.lines().filter(|line| !line.contains("input.0")).flat_map(|line| [line, "\n"]).collect();
    let used = table(&gone).since(&table(X86), &numbered).expect("the same CPUs");
    assert_eq!((used.nic, used.backwards.as_slice()), (None, &["38".to_owned()][..]));
    // Come in between: it began at 0.
    let used = table(X86).since(&table(&gone), &numbered).expect("the same CPUs");
    assert_eq!((used.nic, used.total), (Some(12_365), 12_365));
    // A CPU that comes back brings its old counts along.
    let fewer = RISCV.replace("CPU3", "CPU7");
    let reason = table(&fewer).since(&table(RISCV), &numbered).expect_err("other CPUs");
    assert!(reason.contains("CPUs went on or off"), "{reason}");
    // The kernel keeps 32 bits.
    for (then, now, counted) in [
        (5, 9, Some(4)),
        (9, 9, Some(0)),
        ((1 << 32) - 1, 1, Some(2)),
        (9, 5, None),
        ((1 << 32) - 1, (1 << 31) + 5, None),
        (u64::MAX, 0, None),
    ] {
        assert_eq!(wrapping(then, now), counted, "{then} to {now}");
    }
}

#[test]
fn soft_interrupts_are_summed_over_the_cpus_by_kind() {
    let text = "\
                    CPU0       CPU1       
          HI:          0          0
      NET_TX:    1639031    1612074
      NET_RX: 4294967290  973303986
";
    let later = text
        .replace("4294967290", "         4")
        .replace("973303986", "973303987")
        .replace("1639031", "      7");
    let mut absent = BTreeMap::new();
    let used = table(&later).sums_since(&table(text), "softirqs", &mut absent).expect("the same CPUs");
    assert_eq!(used, BTreeMap::from([("HI".to_owned(), 0), ("NET_RX".to_owned(), 11)]));
    assert!(absent["softirqs.NET_TX"].contains("backwards"), "{absent:?}");
}

/// A text of what such files are made of, in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("CPU0".to_owned()),
        Just("CPU1 ".to_owned()),
        Just("CPU99999999999".to_owned()),
        Just(": ".to_owned()),
        Just("LOC:".to_owned()),
        Just("\n".to_owned()),
        Just("-edge ".to_owned()),
        Just("Level ".to_owned()),
        Just("eth0-rx-".to_owned()),
        Just("ä\u{2028}".to_owned()),
        any::<u64>().prop_map(|number| format!(" {number} ")),
        any::<u32>().prop_map(|number| format!("{number:08x} ")),
        any::<String>(),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic_and_no_difference_is_more_than_what_is_there(
        then in words(),
        now in words(),
        headed in any::<bool>(),
    ) {
        let head = |text: String| if headed { format!("CPU0 CPU1\n{text}") } else { text };
        let (then, now) = (head(then), head(now));
        let (tables, owner) = ((Table::parse(&then), Table::parse(&now)), by_name("eth0"));
        if let (Some(then), Some(now)) = tables {
            if let Ok(used) = now.since(&then, &owner) {
                prop_assert!(used.nic.is_none_or(|nic| nic <= used.total));
                prop_assert!(used.lines.len() <= MOST_LINES);
            }
            let _ = now.sums_since(&then, "softirqs", &mut BTreeMap::new());
        }
        if let (Some(then), Some(now)) = (Softnet::parse(&then), Softnet::parse(&now)) {
            let _ = now.since(&then, &mut BTreeMap::new());
        }
        let _ = queue_of(&now);
        let _ = super::super::named_counters(&now);
    }
}

/// A vlan has no line of its own; the NIC it stands on has.
#[test]
fn a_device_owns_the_lines_of_those_it_stands_on() {
    let mut owner = Owner { what: "eth0.5 (802.1Q)".to_owned(), ..by_name("eth0.5") };
    let nic = Owner {
        numbers: ["38".to_owned()].into(),
        by: "msi_irqs".to_owned(),
        what: "eth0 (virtio_net)".to_owned(),
        ..Owner::default()
    };
    owner.join(nic);
    assert_eq!(
        (owner.what.as_str(), owner.by.as_str()),
        ("eth0.5 (802.1Q) on eth0 (virtio_net)", "msi_irqs")
    );
    let line = |label: &str| Line { label: label.to_owned(), text: String::new(), counts: vec![1] };
    assert!(owner.owns(&line("38")) && !owner.owns(&line("39")));
}
