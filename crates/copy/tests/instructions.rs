//! What runs is what was written: case I13. Each routine is decoded from its first instruction along every branch;
//! one that is named for an instruction contains it, and none calls or jumps out of the crate, to `memcpy` or to
//! anything else.
#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeMap, BTreeSet};

use haul_copy::checksum;
use haul_copy::{Isa, Known, known};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Longer than any routine.
const MOST: usize = 1500;

/// Every instruction that can be reached from `start` by branches whose target is in the instruction.
fn reachable(start: usize) -> BTreeMap<u64, Instruction> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![start as u64]);
    while let Some(mut at) = todo.pop() {
        while !found.contains_key(&at) {
            // SAFETY: it is code of this process, and the longest instruction has 15 bytes; the linker puts more
            // behind it.
            let bytes = unsafe {
                std::slice::from_raw_parts(
                    std::ptr::with_exposed_provenance(usize::try_from(at).unwrap()),
                    15,
                )
            };
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            assert_ne!(instruction.mnemonic(), Mnemonic::INVALID, "no instruction at {at:#x}");
            found.insert(at, instruction);
            assert!(found.len() < MOST, "more than a routine of copies");
            at = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch => todo.push(instruction.near_branch_target()),
                FlowControl::UnconditionalBranch => at = instruction.near_branch_target(),
                FlowControl::Return => break,
                other => panic!("{other:?} at {:#x}: {:?}", instruction.ip(), instruction.mnemonic()),
            }
        }
    }
    found
}

/// Mnemonic, whether it is a string instruction with a prefix, and the width of the vector it stores from, of a store.
fn stores(instruction: &Instruction) -> bool {
    // A long no-operation between loops names an operand, too.
    let looks = [Mnemonic::Cmp, Mnemonic::Test, Mnemonic::Nop];
    instruction.op0_kind() == OpKind::Memory && !looks.contains(&instruction.mnemonic())
}

fn has(code: &BTreeMap<u64, Instruction>, wanted: impl Fn(&Instruction) -> bool) -> bool {
    code.values().any(wanted)
}

fn check(routine: Known) {
    // SAFETY: it is only looked at.
    let start = unsafe { routine.routine_unchecked() }.address();
    let code = reachable(start.expose_provenance());
    let name = routine.name();
    let string = |mnemonic| has(&code, move |one| one.mnemonic() == mnemonic && one.has_rep_prefix());
    let store = |mnemonics: &[Mnemonic], width: fn(Register) -> bool| {
        has(&code, |one| stores(one) && mnemonics.contains(&one.mnemonic()) && width(one.op1_register()))
    };
    // The width of the widest move decides: a routine for narrower vectors uses no wider ones.
    let zmm = has(&code, |one| one.op0_register().is_zmm() || one.op1_register().is_zmm());
    let ymm = has(&code, |one| one.op0_register().is_ymm() || one.op1_register().is_ymm());
    let streams = [Mnemonic::Movntps, Mnemonic::Vmovntdq, Mnemonic::Movnti];
    let fenced = has(&code, |one| one.mnemonic() == Mnemonic::Sfence);

    if name.starts_with("rep-movsb") {
        assert!(string(Mnemonic::Movsb), "{name}");
    }
    if name.starts_with("rep-movsq") {
        assert!(string(Mnemonic::Movsq), "{name}");
    }
    if name.starts_with("int32") {
        assert!(store(&[Mnemonic::Mov], Register::is_gpr32) && string(Mnemonic::Movsd), "{name}");
        assert!(!store(&[Mnemonic::Mov], Register::is_gpr64) || name.ends_with("-aligned"), "{name}");
    }
    if name.starts_with("int64") {
        let wanted = if name.ends_with("-nt") { Mnemonic::Movnti } else { Mnemonic::Mov };
        assert!(store(&[wanted], Register::is_gpr64) && string(Mnemonic::Movsq), "{name}");
    }
    if name.contains("sse2") {
        let moves = [Mnemonic::Movups, Mnemonic::Movntps];
        assert!(store(&moves, Register::is_xmm) && !ymm && !zmm, "{name}");
    }
    if name.contains("avx2") {
        let moves = [Mnemonic::Vmovdqu, Mnemonic::Vmovntdq];
        assert!(store(&moves, Register::is_ymm) && !zmm, "{name}");
        assert!(
            has(&code, |one| one.mnemonic() == Mnemonic::Vzeroupper),
            "{name}: leaves the upper halves dirty"
        );
    }
    if name.contains("avx512") {
        let moves = [Mnemonic::Vmovdqu64, Mnemonic::Vmovntdq];
        assert!(store(&moves, Register::is_zmm), "{name}");
    }
    if routine.isa() == Isa::Portable {
        assert!(store(&[Mnemonic::Mov], Register::is_gpr8), "{name}: stores bytes");
        assert_eq!(name != "bytes", store(&[Mnemonic::Mov], Register::is_gpr64), "{name}: stores words");
        assert!(!zmm && !ymm && !string(Mnemonic::Movsb) && !string(Mnemonic::Movsq), "{name}");
    }
    let streaming = has(&code, |one| streams.contains(&one.mnemonic()));
    assert_eq!(streaming, name.ends_with("-nt") || name.starts_with("auto-"), "{name}: streaming stores");
    assert_eq!(streaming, fenced, "{name}: a fence where there are streaming stores, and nowhere else");
    println!("decoded {name}: {} instructions", code.len());
}

/// Of a checksum routine in assembly both forms: a copy stores what it adds, a sum stores nothing. The one in Rust is not
/// decoded: without optimisation it calls what the compiler makes of its loops.
fn check_sum(routine: checksum::KnownSum) {
    // SAFETY: it is only looked at.
    let unchecked = unsafe { routine.routine_unchecked() };
    for (form, start) in [("copy", unchecked.copy_address()), ("sum", unchecked.sum_address())] {
        let code = reachable(start.expose_provenance());
        let name = format!("{} ({form})", routine.name());
        let store = |width: fn(Register) -> bool| has(&code, |one| stores(one) && width(one.op1_register()));
        let uses = |width: fn(Register) -> bool| {
            has(&code, |one| one.op_kinds().zip(0..).any(|(_, at)| width(one.op_register(at))))
        };
        let one_of = |wanted: &[Mnemonic]| has(&code, |one| wanted.contains(&one.mnemonic()));
        let wide: fn(Register) -> bool = match routine.name() {
            "adc64" => Register::is_gpr64,
            "sse2" => Register::is_xmm,
            "avx2" => Register::is_ymm,
            "avx512" | "avx512-vnni" => Register::is_zmm,
            other => panic!("what is {other} to contain?"),
        };
        assert_eq!(store(wide), form == "copy", "{name}: stores its widest registers");
        assert_eq!(has(&code, stores), form == "copy", "{name}: a copy stores, a sum does not");
        assert!(uses(wide), "{name}: adds its widest registers");
        let narrow = !uses(Register::is_zmm) || routine.name().starts_with("avx512");
        assert!(narrow, "{name}: registers that its CPU may not have");
        assert!(!uses(Register::is_ymm) || routine.name().starts_with("avx"), "{name}: likewise");
        let (adc, dot) = (one_of(&[Mnemonic::Adc]), one_of(&[Mnemonic::Vpdpbusd]));
        assert_eq!(dot, routine.name() == "avx512-vnni", "{name}: dot products of bytes");
        match routine.name() {
            "adc64" => assert!(adc, "{name}"),
            "sse2" => assert!(one_of(&[Mnemonic::Paddq]), "{name}"),
            "avx2" => assert!(one_of(&[Mnemonic::Vpaddq]) && one_of(&[Mnemonic::Vzeroupper]), "{name}"),
            "avx512" => assert!(one_of(&[Mnemonic::Vpaddq]), "{name}"),
            _ => {}
        }
        println!("decoded {name}: {} instructions", code.len());
    }
}

#[test]
fn every_checksum_routine_is_what_its_name_says() {
    let assembly: Vec<_> = checksum::known().filter(|routine| routine.isa() != Isa::Portable).collect();
    assert_eq!(assembly.len(), 5, "all that x86-64 has");
    for routine in assembly {
        check_sum(routine);
    }
}

#[test]
fn every_routine_is_what_its_name_says() {
    for routine in known() {
        check(routine);
    }
}

/// The plain form and the one that survives faults are one: not a byte of code differs, so neither does the time.
#[test]
fn no_two_names_are_one_routine() {
    let mut addresses = BTreeSet::new();
    for routine in known() {
        // SAFETY: it is only looked at.
        let address = unsafe { routine.routine_unchecked() }.address();
        assert!(addresses.insert(address), "{} has another's code", routine.name());
    }
}
