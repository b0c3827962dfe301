//! Scratch.
use haul_copy::{Peer, Routine};
use std::hint::black_box;
use std::time::Instant;
struct Map(*mut u8);
fn map(len: usize) -> Map {
    unsafe {
        let al = 2 << 20;
        let p = libc::mmap(std::ptr::null_mut(), len + al, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) as usize;
        let a = (p + al - 1) / al * al;
        libc::madvise(a as *mut _, len, libc::MADV_HUGEPAGE);
        for i in (0..len).step_by(64) { *((a + i) as *mut u8) = i as u8; }
        Map(a as *mut u8)
    }
}
enum S { R(Routine), P(Peer) }
impl S { fn name(&self)->&'static str { match self { S::R(r)=>r.name(), S::P(p)=>p.name() } } }
fn go(s: &S, d: *mut u8, c: *const u8, n: usize, reps: usize) -> f64 {
    let t = Instant::now();
    match s {
        S::R(r) => for _ in 0..reps { unsafe { black_box(r.try_copy(black_box(d), black_box(c), black_box(n))) }; },
        S::P(r) => for _ in 0..reps { unsafe { black_box(r.copy(black_box(d), black_box(c), black_box(n))) }; },
    }
    t.elapsed().as_secs_f64() / reps as f64
}
fn main() {
    unsafe { let mut c: libc::cpu_set_t = std::mem::zeroed(); libc::CPU_SET(1, &mut c); libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &c); }
    let a: Vec<String> = std::env::args().collect();
    let sizes: Vec<usize> = a[1].split(',').map(|x| { let (n,m)= if let Some(k)=x.strip_suffix('K'){(k,1024)} else if let Some(k)=x.strip_suffix('M'){(k,1<<20)} else {(x,1)}; (n.parse::<f64>().unwrap()*m as f64) as usize }).collect();
    let offs: Vec<(usize,usize)> = a[2].split(' ').map(|x| { let (s,d)=x.split_once(',').unwrap(); (s.parse().unwrap(), d.parse().unwrap()) }).collect();
    let names: Vec<&str> = a[3].split(',').collect();
    let passes: usize = a.get(4).map_or(21, |x| x.parse().unwrap());
    let max = *sizes.iter().max().unwrap() + (1<<16);
    let (s, d) = (map(max), map(max));
    let subs: Vec<S> = names.iter().map(|n| Routine::by_name(n).map(S::R).or_else(|| Peer::by_name(n).map(S::P)).unwrap_or_else(|| panic!("{n}"))).collect();
    print!("{:>9} {:>9}", "size", "off");
    for s in &subs { print!(" {:>15}", s.name()); } println!("   GB/s libc, ratios of others");
    for &n in &sizes { for &(so, dof) in &offs {
        let reps = (40_000_000 / (n + 1500) / 40).max(1);
        let mut t = vec![vec![]; subs.len()];
        for p in 0..passes { for i in 0..subs.len() { let j=(i+p)%subs.len(); 
            go(&subs[j], d.0.wrapping_add(dof), s.0.wrapping_add(so), n, (reps/8).max(1));
            t[j].push(go(&subs[j], d.0.wrapping_add(dof), s.0.wrapping_add(so), n, reps)); } }
        let med: Vec<f64> = t.iter().map(|v| { let mut v=v.clone(); v.sort_by(f64::total_cmp); v[v.len()/2] }).collect();
        print!("{:>9} {:>9}", n, format!("{so},{dof}"));
        for (i,m) in med.iter().enumerate() { if i==0 { print!(" {:>15.1}", n as f64/m/1e9) } else { print!(" {:>15.3}", med[0]/m) } } println!();
    } }
}
