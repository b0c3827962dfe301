//! temporary
#![cfg(any(target_arch = "riscv64", target_arch = "aarch64"))]
#![allow(missing_docs, clippy::all, clippy::pedantic)]
use haul_copy::Routine;
extern "C" fn on_segv(sig: i32, _: *mut libc::siginfo_t, uc: *mut libc::ucontext_t) {
    unsafe {
        #[cfg(target_arch = "riscv64")]
        let pc = (&raw mut (*uc).uc_mcontext.__gregs[0]).cast::<usize>();
        #[cfg(target_arch = "aarch64")]
        let pc = (&raw mut (*uc).uc_mcontext.pc).cast::<usize>();
        if let Some(fix) = haul_copy::fault::fixup(*pc) { *pc = fix } else { libc::signal(sig, libc::SIG_DFL); }
    }
}
struct Map { p: *mut u8, n: usize }
fn map(pages: usize) -> Map {
    unsafe {
        let page = 4096;
        let m = libc::mmap(std::ptr::null_mut(), (pages + 2) * page, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).cast::<u8>();
        libc::mprotect(m.cast(), page, libc::PROT_NONE);
        libc::mprotect(m.add((pages + 1) * page).cast(), page, libc::PROT_NONE);
        Map { p: m.add(page), n: pages * page }
    }
}
#[test]
fn quick() {
    unsafe {
        let mut sa: libc::sigaction = std::mem::zeroed();
        sa.sa_sigaction = on_segv as *const () as usize;
        sa.sa_flags = libc::SA_SIGINFO;
        for s in [libc::SIGSEGV, libc::SIGBUS] { assert_eq!(libc::sigaction(s, &sa, std::ptr::null_mut()), 0); }
    }
    let (src, dst) = (map(2), map(2));
    for i in 0..src.n { unsafe { src.p.add(i).write((i * 7 + i / 256) as u8) } }
    let names: Vec<_> = Routine::all().map(|r| r.name()).collect();
    println!("routines: {names:?} best {:?}", Routine::best());
    let lens: Vec<usize> = (0..150).chain([159, 160, 191, 255, 256, 257, 300, 512, 1000, 2048]).collect();
    let mut cases = 0u64;
    for r in Routine::all() {
        for &len in &lens {
            for so in (0..16).chain([31, 63]) { for d_o in (0..16).chain([17, 31, 33, 63]) {
                // inside, plain
                let (s, d) = (src.p.wrapping_add(100 + so), dst.p.wrapping_add(200 + d_o));
                let all = unsafe { std::slice::from_raw_parts_mut(dst.p, dst.n) };
                all[..len + 400].fill(0xee);
                let left = unsafe { r.try_copy(d, s, len) };
                let ok = left == 0 && unsafe { std::slice::from_raw_parts(s, len) } == &all[200 + d_o..200 + d_o + len]
                    && all[..200 + d_o].iter().all(|b| *b == 0xee) && all[200 + d_o + len..len + 400].iter().all(|b| *b == 0xee);
                assert!(ok, "{} len {len} so {so} do {d_o} left {left}", r.name());
                cases += 1;
            }}
        }
        // faults at every offset: source or destination ends `good` bytes on
        for &len in &[1usize, 7, 8, 15, 16, 24, 31, 32, 63, 64, 100, 159, 200, 300, 600] {
            let step = if len > 64 { 7 } else { 1 };
            for good in (0..len).step_by(step) { for other in [0usize, 1, 3, 5, 8, 15] {
                // source fault
                let s = src.p.wrapping_add(src.n - good);
                let d = dst.p.wrapping_add(64 + other);
                let all = unsafe { std::slice::from_raw_parts_mut(dst.p, dst.n) };
                all[..len + 200].fill(0xee);
                let left = unsafe { r.try_copy(d, s, len) };
                assert_eq!(left, len - good, "{} src fault len {len} good {good} other {other}", r.name());
                assert!(unsafe { std::slice::from_raw_parts(s, good) } == &all[64 + other..64 + other + good] && all[64 + other + good..len + 200].iter().all(|b| *b == 0xee),
                    "{} src fault len {len} good {good} other {other}", r.name());
                // destination fault
                let s = src.p.wrapping_add(64 + other);
                let d = dst.p.wrapping_add(dst.n - good);
                all[dst.n - len - 64..].fill(0xee);
                let left = unsafe { r.try_copy(d, s, len) };
                assert_eq!(left, len - good, "{} dst fault len {len} good {good} other {other}", r.name());
                assert!(unsafe { std::slice::from_raw_parts(s, good) } == &all[dst.n - good..], "{} dst", r.name());
                // before
                let s = src.p.wrapping_sub(1 + other);
                let d = dst.p.wrapping_add(64 + other);
                all[..len + 200].fill(0xee);
                assert_eq!(unsafe { r.try_copy(d, s, len) }, len);
                assert!(all[..len + 200].iter().all(|b| *b == 0xee));
                let s = src.p.wrapping_add(64);
                let d = dst.p.wrapping_sub(1 + other);
                assert_eq!(unsafe { r.try_copy(d, s, len) }, len);
                assert!(all[..len + 200].iter().all(|b| *b == 0xee), "{} before len {len} other {other}", r.name());
                cases += 4;
            }}
        }
    }
    println!("{cases} cases");
}
