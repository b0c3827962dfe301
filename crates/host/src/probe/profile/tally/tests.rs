use super::super::record::written::{pair, record};
use super::*;

const KERNEL_MODE: u16 = 1;
const USER_MODE: u16 = 2;
const MARK_KERNEL: u64 = (-128_i64).cast_unsigned();
const MARK_USER: u64 = (-512_i64).cast_unsigned();

fn sample(mode: u16, pid: u32, ip: u64, time: u64, chain: Option<&[u64]>) -> Vec<u8> {
    let mut words = vec![ip, pair(pid, pid), time, pair(0, 0), 1000];
    if let Some(chain) = chain {
        words.push(chain.len() as u64);
        words.extend(chain);
    }
    record(9, mode, &words)
}

const BASE: u64 = 0xffff_ffff_8100_0000;
const COPY: u64 = BASE + 0x1010;
const SOFTIRQ: u64 = BASE + 0x2010;
const HALT: u64 = BASE + 0x3010;
const TCP: u64 = BASE + 0x4010;
const VFS: u64 = BASE + 0x5010;
const MODULE: u64 = 0xffff_ffff_c020_0010;

fn names(zeroed: bool) -> Names {
    let text = "ffffffff81001000 T _copy_to_iter\nffffffff81002000 T handle_softirqs\nffffffff81003000 T default_idle\n\
        ffffffff81004000 T tcp_v4_rcv\nffffffff81005000 T vfs_read\nffffffffc0200000 t r8169_poll\t[r8169]\n";
    let hidden = |line: &str| [&"0".repeat(16), &line[16..], "\n"].concat();
    let text = if zeroed { text.lines().map(hidden).collect() } else { text.to_owned() };
    Names {
        modules: String::new(),
        kernel: KernelSymbols::parse(text.as_bytes()),
        users: Users::Fixed(BTreeMap::from([
            (0x1000, "main"),
            (0x0fff, "main"),
            (0x2000, "work;hard"),
            (0x1fff, "work;hard"),
        ])),
        drivers: BTreeSet::from(["r8169".to_owned()]),
        gone: BTreeSet::new(),
    }
}

fn header() -> Header {
    Header {
        event: "cpu-clock".into(),
        unit: Unit::Nanoseconds,
        hz: 997,
        cpus: 2,
        window: Duration::from_secs(1),
        notes: Vec::new(),
        narrowed: None,
    }
}

const OWN: u32 = 7;

fn profile(chains: bool, records: &[Vec<u8>], names: &mut Names) -> Profile {
    let mut tally = Tally::new(OWN, chains);
    tally.take(&records.concat(), &(100..200));
    let profile = tally.profile(header(), names);
    let listed: u64 = profile.symbols.iter().map(|symbol| symbol.samples).sum();
    assert_eq!(listed + profile.other + profile.idle, profile.samples);
    profile
}

fn short(profile: &Profile) -> Vec<(&str, &str, Class, Context, bool, u64)> {
    profile
        .symbols
        .iter()
        .map(|one| (one.symbol.as_str(), one.module.as_str(), one.class, one.context, one.own, one.samples))
        .collect()
}

#[test]
fn equal_samples_are_one_symbol_with_its_class_and_idle_stands_apart() {
    let mut records = vec![sample(KERNEL_MODE, 0, HALT, 150, None); 5];
    records.extend(vec![sample(KERNEL_MODE, OWN, COPY, 150, None); 4]);
    records.push(sample(KERNEL_MODE, OWN, COPY + 8, 150, None));
    records.extend(vec![sample(USER_MODE, OWN, 0x1000, 150, None); 3]);
    records.extend(vec![sample(KERNEL_MODE, 9, MODULE, 150, None); 2]);
    let profile = profile(false, &records, &mut names(false));
    assert_eq!((profile.samples, profile.idle, profile.unresolved, profile.amount), (15, 5, 0, 15_000));
    assert_eq!(
        short(&profile),
        [
            ("_copy_to_iter", "[kernel]", Class::Copy, Context::Kernel, true, 5),
            ("main", "prog", Class::User, Context::User, true, 3),
            ("r8169_poll", "r8169", Class::Driver, Context::Kernel, false, 2),
        ]
    );
    assert_eq!(profile.symbols[0].amount, 5000);
    assert_eq!(profile.classes[0], ClassCost { class: Class::Copy, samples: 5, amount: 5000 });
    assert!(profile.stacks.is_empty());
}

#[test]
fn only_samples_of_the_window_count_and_losses_from_its_beginning_on() {
    let lost = |count, time| record(2, 0, &[1, count, pair(0, 0), time, 0]);
    let throttle = |time| record(5, 0, &[time, 1, 1, pair(0, 0), time, 0]);
    let records = [
        sample(USER_MODE, OWN, 0x1000, 99, None),
        sample(USER_MODE, OWN, 0x1000, 100, None),
        sample(USER_MODE, OWN, 0x1000, 199, None),
        sample(USER_MODE, OWN, 0x1000, 200, None),
        lost(3, 50),
        lost(5, 150),
        // Told of late, in a record after the window.
        lost(7, 250),
        throttle(99),
        throttle(150),
        record(4711, 0, &[1, 2]),
        record(9, 0, &[1]),
    ];
    let mut tally = Tally::new(OWN, false);
    tally.take(&records.concat(), &(100..200));
    assert_eq!((tally.samples(), tally.outside(), tally.lost(), tally.malformed()), (2, 2, 12, 1));
    assert_eq!(tally.throttled, 1);
    // A window that is not closed yet takes all from its opening on; one that is not open takes none.
    let mut open = Tally::new(OWN, false);
    open.take(&records.concat(), &(100..u64::MAX));
    assert_eq!(open.samples(), 3);
    let mut before = Tally::new(OWN, false);
    before.take(&records.concat(), &(u64::MAX..u64::MAX));
    assert_eq!((before.samples(), before.lost()), (0, 0));
}

#[test]
fn callers_tell_softirq_from_the_rest_and_are_folded_from_the_outermost() {
    let softirq = [MARK_KERNEL, TCP, SOFTIRQ + 1, VFS + 1, MARK_USER, 0x1000];
    let read = [MARK_KERNEL, COPY, VFS + 1, MARK_USER, 0x2000, 0x1000];
    let user = [MARK_USER, 0x2000, 0x1000];
    let idle = [MARK_KERNEL, HALT];
    let busy_idle_task = [MARK_KERNEL, TCP, SOFTIRQ, HALT];
    let records = [
        vec![sample(KERNEL_MODE, OWN, TCP, 150, Some(&softirq)); 3],
        vec![sample(KERNEL_MODE, OWN, COPY, 150, Some(&read)); 4],
        vec![sample(USER_MODE, OWN, 0x2000, 150, Some(&user)); 2],
        vec![sample(KERNEL_MODE, 0, HALT, 150, Some(&idle))],
        vec![sample(KERNEL_MODE, 0, TCP, 150, Some(&busy_idle_task))],
    ]
    .concat();
    let profile = profile(true, &records, &mut names(false));
    assert_eq!(
        short(&profile),
        [
            ("_copy_to_iter", "[kernel]", Class::Copy, Context::Kernel, true, 4),
            ("tcp_v4_rcv", "[kernel]", Class::Tcp, Context::Softirq, true, 3),
            ("work;hard", "prog", Class::User, Context::User, true, 2),
            ("tcp_v4_rcv", "[kernel]", Class::Tcp, Context::Softirq, false, 1),
        ]
    );
    assert_eq!(profile.idle, 1, "softirq on a CPU that was idle is work");
    let folded: Vec<String> = profile.folded().lines().map(str::to_owned).collect();
    assert_eq!(
        folded,
        [
            "prog-7;main;work:hard;vfs_read_[k];_copy_to_iter_[k] 4",
            "prog-7;main;vfs_read_[k];handle_softirqs_[k];tcp_v4_rcv_[k] 3",
            "prog-7;main;work:hard 2",
            "swapper;default_idle_[k];handle_softirqs_[k];tcp_v4_rcv_[k] 1",
        ]
    );
    assert_eq!(profile.other_stacks, 0);
}

#[test]
fn without_the_kernels_addresses_its_time_is_one_line_and_said_to_be() {
    let records = [
        vec![sample(KERNEL_MODE, OWN, COPY, 150, None); 3],
        vec![sample(KERNEL_MODE, OWN, TCP, 150, None); 2],
        vec![sample(USER_MODE, OWN, 0x9999, 150, None)],
    ];
    let profile = profile(false, &records.concat(), &mut names(true));
    assert_eq!(
        short(&profile),
        [
            ("[unknown]", "[kernel]", Class::Other, Context::Kernel, true, 5),
            ("[unknown]", "prog-7", Class::User, Context::User, true, 1),
        ]
    );
    assert_eq!((profile.unresolved, profile.resolved()), (6, 0.0));
    assert!(
        profile.notes.iter().any(|note| note.contains("are hidden (kernel.kptr_restrict")),
        "{:?}",
        profile.notes
    );
}

#[test]
fn what_is_more_than_the_lists_hold_is_counted() {
    // Each its own address: distinct names are few, so nothing is cut of the symbols; stacks beyond the bound become leaves.
    let stacks = MOST_STACKS as u64 + 50;
    let records: Vec<Vec<u8>> = (0..stacks)
        .map(|turn| sample(USER_MODE, OWN, 0x1000, 150, Some(&[MARK_USER, 0x1000, 0x10_0000 + turn])))
        .collect();
    let profile = profile(true, &records, &mut names(false));
    assert_eq!(profile.samples, stacks);
    let listed: u64 = profile.stacks.iter().map(|(_, samples)| samples).sum();
    assert_eq!((listed + profile.other_stacks, profile.other_stacks >= 50), (stacks, true));
    assert!(profile.stacks.len() <= Profile::MOST_STACKS);
    // And addresses beyond theirs are counted as other.
    let mut tally = Tally::new(OWN, false);
    for turn in 0..(MOST_ADDRESSES as u64 + 30) {
        tally.take(&sample(USER_MODE, OWN, 0x10_0000 + turn, 150, None), &(100..200));
    }
    let full = tally.profile(header(), &mut names(false));
    assert_eq!((full.samples, full.other), (MOST_ADDRESSES as u64 + 30, 30));
}

#[test]
fn the_costliest_thousand_symbols_are_listed_and_the_rest_is_other() {
    let mut fixed = names(false);
    let leaked: BTreeMap<u64, &'static str> =
        (0..1200_u64).map(|turn| (turn, &*Box::leak(format!("function_{turn}").into_boxed_str()))).collect();
    fixed.users = Users::Fixed(leaked);
    let mut records: Vec<Vec<u8>> = (0..1200).map(|turn| sample(USER_MODE, OWN, turn, 150, None)).collect();
    records.extend(vec![sample(USER_MODE, OWN, 1199, 150, None); 3]);
    let profile = profile(false, &records, &mut fixed);
    assert_eq!((profile.symbols.len(), profile.other, profile.samples), (1000, 200, 1203));
    assert_eq!((profile.symbols[0].symbol.as_str(), profile.symbols[0].samples), ("function_1199", 4));
    assert_eq!(profile.classes[0].samples, 1203, "classes are of all");
}

#[test]
fn the_busiest_threads_are_told_apart_and_the_others_are_one() {
    let threads = u32::try_from(MOST_THREADS).expect("few") + 50;
    let mut records: Vec<Vec<u8>> =
        (1..=threads).map(|tid| sample(KERNEL_MODE, tid, COPY, 150, None)).collect();
    records.push(sample(KERNEL_MODE, threads, COPY, 151, None));
    let profile = profile(false, &records, &mut names(false));
    let apart: Vec<&SymbolCost> = profile.symbols.iter().filter(|symbol| symbol.thread.is_some()).collect();
    assert_eq!(apart.len(), MOST_THREADS);
    assert_eq!((apart[0].thread, apart[0].samples), (Some(Tid::of_sample(threads)), 2));
    let rest: u64 = profile.symbols.iter().filter(|it| it.thread.is_none()).map(|it| it.samples).sum();
    assert_eq!(rest, 50);
}

#[test]
fn long_names_are_shortened_and_the_end_of_an_interrupt_is_no_interrupt() {
    let long = "n".repeat(500);
    assert_eq!((shortened(&long, 200).chars().count(), shortened("néé", 3).as_str()), (201, "néé"));
    assert_eq!(shortened("néé", 2), "né…");
    let text = "ffffffff81001000 T asm_sysvec_apic_timer_interrupt\nffffffff81002000 T __schedule\nffffffff81003000 t finish_task_switch\n\
        ffffffff81004000 T handle_softirqs\n";
    let mut fixed = names(false);
    fixed.kernel = KernelSymbols::parse(text.as_bytes());
    let (interrupt, schedule, finish, softirq) = (BASE + 0x1010, BASE + 0x2010, BASE + 0x3010, BASE + 0x4010);
    let switched = [MARK_KERNEL, finish, schedule, interrupt];
    let entering = [MARK_KERNEL, softirq, interrupt];
    let records = [
        vec![sample(KERNEL_MODE, OWN, finish, 150, Some(&switched)); 2],
        vec![sample(KERNEL_MODE, OWN, softirq, 150, Some(&entering))],
    ];
    let profile = profile(true, &records.concat(), &mut fixed);
    let contexts: Vec<_> =
        short(&profile).into_iter().map(|(symbol, .., context, _, _)| (symbol, context)).collect();
    assert_eq!(contexts, [("finish_task_switch", Context::Kernel), ("handle_softirqs", Context::Softirq)]);
}

/// A record of a new name, of a thread of a process.
fn named(pid: u32, tid: u32, name: [u8; 8]) -> Vec<u8> {
    record(3, 0, &[pair(pid, tid), u64::from_ne_bytes(name), pair(pid, tid), 150, pair(0, 0)])
}

#[test]
fn a_process_that_ended_has_the_name_it_began_with() {
    let user = [MARK_USER, 0x2000, 0x1000];
    let of = |names_told: &[Vec<u8>]| {
        let samples = [
            sample(USER_MODE, GONE, 0x2000, 150, Some(&user)),
            // At an address no file is known for.
            sample(USER_MODE, GONE, 0x9000, 150, Some(&[MARK_USER, 0x9000])),
        ];
        let profile = profile(true, &[names_told, &samples[..]].concat(), &mut names(false));
        let modules: BTreeSet<String> = profile.symbols.iter().map(|one| one.module.clone()).collect();
        let stacks = profile.stacks.iter().map(|(stack, _)| stack.split(';').next().unwrap_or("").to_owned());
        (stacks.collect::<BTreeSet<String>>(), modules)
    };
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(of(&[]), (set(&["[ended]"]), set(&["prog", "[ended]"])));
    // A shell that became its command; the name of another thread, and of another process, is not its own.
    let told = [
        named(GONE, GONE, *b"sh\0\0\0\0\0\0"),
        named(GONE, GONE, *b"cc1\0\0\0\0\0"),
        named(GONE, GONE + 1, *b"worker\0\0"),
        named(OWN, OWN, *b"other\0\0\0"),
    ];
    assert_eq!(of(&told), (set(&["cc1"]), set(&["prog", "cc1"])));
}
