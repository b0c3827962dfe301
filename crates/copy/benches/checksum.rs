//! Copy and sum in one pass against a copy and then a sum by the same arithmetic, interleaved.
//!
//! ```text
//! cargo bench -p haul-copy --bench checksum                      all routines
//! cargo bench -p haul-copy --bench checksum -- avx512 auto 1500  these routines, these lengths
//! cargo bench -p haul-copy --bench checksum -- short             where `auto` changes from one to the next
//! ```
//!
//! Every round runs each arm once, in an order that is rotated; a ratio is the median over the rounds of the ratio within
//! the round, so that what disturbs a round disturbs both of its sides. The copy of the separate arm is libc's `memcpy`, or
//! `haul_copy`'s own best where that is faster in the round. The ceiling is what a fused pass as fast as the slower of its
//! two halves would get: where it is below the bound, the two halves hardly have anything to do at the same time. Beside a
//! missed cell stands which half that is, and what share of the ceiling the fused pass reached: near 1.00 it is the machine
//! that cannot do it, and below that the routine. A sum that gets faster lowers the ceiling.

use std::hint::black_box;
use std::time::Instant;

use haul_copy::Routine;
use haul_copy::checksum::SumRoutine;

/// How much faster one pass has to be than two, at least, in [`BOUND_FROM`]`..=`[`BOUND_TO`].
const BOUND: f64 = 1.4;
const BOUND_FROM: usize = 1 << 10;
const BOUND_TO: usize = 1 << 20;
const SIZES: [usize; 9] = [256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Offsets of source and destination: aligned, each misaligned, both, both alike, and an odd start of the destination.
const OFFSETS: [(usize, usize); 5] = [(0, 0), (1, 0), (0, 1), (3, 5), (8, 8)];
const ROUNDS: usize = 41;
/// Long against the clock (some 25 ns a reading), short against a scheduler's tick.
const SAMPLE_BYTES: usize = 4 << 20;

/// Two buffers with room for the largest size at any offset, aligned to a page.
struct Buffers {
    source: Vec<u8>,
    destination: Vec<u8>,
}

impl Buffers {
    fn new() -> Self {
        let room = (64 << 20) + 2 * 4096;
        let source = (0..room).map(|i: usize| i.wrapping_mul(0x9e37_79b9).to_be_bytes()[3]).collect();
        Self { source, destination: vec![1; room] }
    }

    fn at(&mut self, from: usize, to: usize) -> (*const u8, *mut u8) {
        let page = |address: usize| address.wrapping_neg() % 4096;
        let (source, destination) =
            (page(self.source.as_ptr().addr()), page(self.destination.as_ptr().addr()));
        (self.source[source + from..].as_ptr(), self.destination[destination + to..].as_mut_ptr())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds a call.
fn time(calls: usize, arm: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        arm();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// For each arm its times, round by round.
fn interleave(rounds: usize, calls: usize, arms: &mut [Box<dyn FnMut() + '_>]) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); arms.len()];
    for arm in &mut *arms {
        time(calls / 4 + 1, arm);
    }
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            times[index].push(time(calls, &mut arms[index]));
        }
    }
    times
}

/// What to sum by: one arithmetic, or whatever is chosen for the length.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    sum: SumRoutine,
    copy: SumRoutine,
}

impl Way {
    fn all(len: usize) -> Vec<Self> {
        let mut ways: Vec<_> = SumRoutine::all().map(|r| Self { name: r.name(), sum: r, copy: r }).collect();
        ways.push(Self { name: "auto", sum: SumRoutine::auto_sum(len), copy: SumRoutine::auto_copy(len) });
        ways
    }
}

/// What became of the bound in a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Met,
    Missed,
    /// So would be one pass as fast as the slower half.
    Impossible,
}

/// One row; returns what became of the bound, if there is one for it.
fn compare(
    buffers: &mut Buffers,
    way: Way,
    len: usize,
    (from, to): (usize, usize),
    rounds: usize,
) -> Option<Outcome> {
    let (source, destination) = buffers.at(from, to);
    let calls = (SAMPLE_BYTES / len).clamp(4, 4096).min(if rounds == 1 { 2 } else { usize::MAX });
    let best = Routine::auto(len, source, destination);
    let memcpy = move || {
        // SAFETY: both buffers have room for `len` bytes at these offsets, and are apart.
        unsafe { black_box(destination).copy_from_nonoverlapping(black_box(source), black_box(len)) };
    };
    let ours = move || {
        // SAFETY: as above.
        black_box(unsafe { best.try_copy(black_box(destination), black_box(source), black_box(len)) });
    };
    let sum = move || {
        // SAFETY: as above.
        let _ = black_box(unsafe { way.sum.try_sum(black_box(destination), black_box(len)) });
    };
    let fused = move || {
        // SAFETY: as above.
        let _ = black_box(unsafe {
            way.copy.try_copy(black_box(destination), black_box(source), black_box(len))
        });
    };
    let mut arms: [Box<dyn FnMut()>; 6] = [
        Box::new(fused),
        Box::new(move || {
            memcpy();
            sum();
        }),
        Box::new(move || {
            ours();
            sum();
        }),
        Box::new(memcpy),
        Box::new(ours),
        Box::new(sum),
    ];
    let times = interleave(rounds, calls, &mut arms);
    let rate = |arm: usize| len as f64 / median(times[arm].clone());
    let over_fused = |value: fn(&[Vec<f64>], usize) -> f64| {
        median((0..rounds).map(|round| value(&times, round) / times[0][round]).collect())
    };
    let ratio = over_fused(|times, round| times[1][round].min(times[2][round]));
    let copying = |times: &[Vec<f64>], round: usize| times[3][round].min(times[4][round]);
    let of_rounds = |value: &dyn Fn(usize) -> f64| median((0..rounds).map(value).collect());
    let ceiling = of_rounds(&|round| {
        times[1][round].min(times[2][round]) / copying(&times, round).max(times[5][round])
    });
    let share = of_rounds(&|round| copying(&times, round).max(times[5][round]) / times[0][round]);
    let against_copy = of_rounds(&|round| copying(&times, round) / times[0][round]);
    let slower = if of_rounds(&|round| copying(&times, round) / times[5][round]) > 1.0 {
        "the copy"
    } else {
        "the sum"
    };
    let bound = (BOUND_FROM..=BOUND_TO).contains(&len);
    let verdict = match (bound, ratio >= BOUND) {
        (false, _) => String::new(),
        (true, true) => "met".to_owned(),
        (true, false) if ceiling < BOUND => {
            format!("MISSED, and so is the ceiling: {slower} alone takes {share:.2} of the pass")
        }
        (true, false) => format!("MISSED: {slower} alone takes {share:.2} of the pass"),
    };
    println!(
        "{:>8} {from:>2},{to:<2} {:<11} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1}  {ratio:>5.2} {ceiling:>7.2} {against_copy:>8.2}  {verdict}",
        len,
        way.name,
        rate(3),
        rate(4),
        rate(5),
        rate(1),
        rate(2),
        rate(0),
    );
    bound.then_some(if ratio >= BOUND {
        Outcome::Met
    } else if ceiling < BOUND {
        Outcome::Impossible
    } else {
        Outcome::Missed
    })
}

fn table(only: &[String], rounds: usize) {
    let mut buffers = Buffers::new();
    println!("GB/s, medians of {rounds} interleaved rounds; bound: fused >= {BOUND} x copy then sum");
    println!(
        "{:>8} {:<5} {:<11} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}  {:>5} {:>7} {:>8}",
        "bytes",
        "s,d",
        "routine",
        "memcpy",
        "own",
        "sum",
        "mc+sum",
        "own+su",
        "fused",
        "ratio",
        "ceiling",
        "of copy"
    );
    let mut outcomes = Vec::new();
    let sizes: Vec<usize> = only.iter().filter_map(|size| size.parse().ok()).collect();
    let names: Vec<_> = only.iter().filter(|name| name.parse::<usize>().is_err()).collect();
    for len in if sizes.is_empty() { SIZES.to_vec() } else { sizes } {
        for offsets in OFFSETS {
            for way in Way::all(len) {
                if !names.is_empty() && !names.iter().any(|name| *name == way.name) {
                    continue;
                }
                outcomes.extend(compare(&mut buffers, way, len, offsets, rounds));
            }
        }
    }
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let impossible = count(Outcome::Impossible);
    println!(
        "bound {BOUND}: {} met, {} MISSED, {impossible} of them where one pass as fast as its slower half would miss it too",
        count(Outcome::Met),
        count(Outcome::Missed) + impossible
    );
}

/// Nanoseconds a call for short lengths, aligned and not: where one routine overtakes the other.
fn short(rounds: usize) {
    let mut buffers = Buffers::new();
    let routines: Vec<_> = SumRoutine::all().filter(|routine| routine.name() != "words-shift").collect();
    for copies in [false, true] {
        print!("{:<6}{:>6}", if copies { "copy" } else { "sum" }, "s,d");
        for routine in &routines {
            print!("{:>9}", routine.name());
        }
        println!("   auto   ns a call");
        for len in
            [16, 31, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1000, 1024, 1500, 2048, 4096]
        {
            for (from, to) in [(0, 0), (3, 5)] {
                let (source, destination) = buffers.at(from, to);
                let arm = |routine: SumRoutine| -> Box<dyn FnMut()> {
                    Box::new(move || {
                        let _ = black_box(if copies {
                            // SAFETY: both buffers have room for `len` bytes at these offsets, and are apart.
                            unsafe { routine.try_copy(destination, source, black_box(len)) }
                        } else {
                            // SAFETY: as above.
                            unsafe { routine.try_sum(source, black_box(len)) }
                        });
                    })
                };
                let mut arms: Vec<_> = routines.iter().map(|routine| arm(*routine)).collect();
                let times = interleave(rounds, 2000, &mut arms);
                print!("{len:>6} {from:>2},{to:<2}");
                for times in times {
                    print!("{:>9.2}", median(times));
                }
                let auto = if copies { SumRoutine::auto_copy(len) } else { SumRoutine::auto_sum(len) };
                println!("   {}", auto.name());
            }
        }
    }
}

fn main() {
    let mut only: Vec<_> = std::env::args().skip(1).collect();
    // `cargo bench` says so; `cargo test --benches` does not, and only wants to see that it runs.
    let measuring = only.iter().any(|argument| argument == "--bench");
    only.retain(|argument| !argument.starts_with("--"));
    let rounds = if measuring { ROUNDS } else { 1 };
    let names: Vec<_> = SumRoutine::all().map(SumRoutine::name).collect();
    println!("checksum routines here: {}", names.join(" "));
    if only.iter().any(|name| name == "short") { short(rounds) } else { table(&only, rounds) }
}
