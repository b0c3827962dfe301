//! Buffers of exactly the length of the copy, for what checks every access: Miri, where only the portable routines are.
//!
//! `cargo +nightly miri test -p haul-copy --test portable`

use haul_copy::{Isa, Overlap, Routine, known};

const WORD: usize = size_of::<usize>();

/// Under Miri an access takes microseconds.
const LENGTHS: usize = if cfg!(miri) { 2 * WORD + 2 } else { 300 };

/// A buffer whose first byte is `offset` past a multiple of a word, and which ends where it ends.
struct Buffer {
    words: Vec<usize>,
    offset: usize,
    len: usize,
}

impl Buffer {
    fn new(offset: usize, len: usize, byte: impl Fn(usize) -> u8) -> Self {
        // An allocation of whole words would allow what is beyond the copy: a boxed slice of bytes would not be
        // aligned. So the words are whole, and what is to be exact is the end that the copy has.
        let words = vec![0; (offset + len).div_ceil(WORD)];
        let mut buffer = Self { words, offset, len };
        for at in 0..len {
            // SAFETY: within the allocation.
            unsafe { buffer.start().wrapping_add(at).write(byte(at)) };
        }
        buffer
    }

    fn start(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(self.offset)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let start = self.start();
        // SAFETY: `len` bytes from there were written.
        unsafe { std::slice::from_raw_parts(start, self.len) }.to_vec()
    }
}

fn byte(at: usize) -> u8 {
    u8::try_from(at % 251).unwrap() + 1
}

#[test]
fn every_length_and_alignment() {
    for routine in Routine::all() {
        for len in 0..=LENGTHS {
            for from in 0..WORD {
                for to in 0..WORD {
                    let mut src = Buffer::new(from, len, byte);
                    let mut dst = Buffer::new(to, len, |_| 0);
                    // SAFETY: both buffers have that many bytes.
                    unsafe { routine.copy(dst.start(), src.start().cast_const(), len) };
                    let (got, wanted) = (dst.bytes(), src.bytes());
                    assert_eq!(got, wanted, "{}: {len} bytes, offsets {from} and {to}", routine.name());
                }
            }
        }
        println!("ran portable {}", routine.name());
    }
}

/// Byte-sized allocations, which nothing may look beyond.
#[test]
fn nothing_outside_the_allocations() {
    for routine in Routine::all() {
        for len in 0..=LENGTHS {
            for skip in 0..WORD.min(len + 1) {
                let src: Box<[u8]> = (0..len).map(byte).collect();
                let mut dst: Box<[u8]> = vec![0; len].into();
                let n = len - skip;
                let (to, from) = (dst.as_mut_ptr().wrapping_add(skip), src.as_ptr().wrapping_add(skip));
                // SAFETY: `skip` bytes into buffers of `len`.
                unsafe { routine.copy(to, from, n) };
                assert!(
                    dst[skip..] == src[skip..] && dst[..skip].iter().all(|&byte| byte == 0),
                    "{}",
                    routine.name()
                );
                // Against each other in alignment.
                dst.fill(0);
                // SAFETY: as above.
                unsafe { routine.copy(dst.as_mut_ptr(), src.as_ptr().wrapping_add(skip), n) };
                assert!(
                    dst[..n] == src[skip..] && dst[n..].iter().all(|&byte| byte == 0),
                    "{}",
                    routine.name()
                );
            }
        }
    }
}

#[test]
fn overlap_where_it_is_promised() {
    for routine in Routine::all().filter(|routine| routine.overlap() == Overlap::Forward) {
        for len in 0..=4 * WORD {
            for distance in 0..=2 * WORD + 1 {
                let mut bytes: Vec<u8> = (0..distance + len).map(byte).collect();
                let dst = bytes.as_mut_ptr();
                // SAFETY: both are in the vector; the routine promises to cope.
                unsafe { routine.copy(dst, dst.wrapping_add(distance), len) };
                let moved: Vec<u8> = (distance..distance + len).map(byte).collect();
                assert_eq!(bytes[..len], moved[..], "{}: {len} bytes down by {distance}", routine.name());
            }
        }
    }
}

#[test]
fn the_zeroing_form_fills_everything() {
    for routine in Routine::all() {
        let (src, mut dst) = (vec![5_u8; 77], vec![9_u8; 70]);
        // SAFETY: the source is long enough.
        assert_eq!(unsafe { routine.try_copy_in(&mut dst, src.as_ptr()) }, 0);
        assert!(dst.iter().all(|&byte| byte == 5));
    }
}

#[test]
fn the_portable_ones_are_everywhere() {
    let portable: Vec<&str> = known()
        .filter(|known| known.isa() == Isa::Portable)
        .map(|known| {
            assert!(known.routine().is_some() && known.needs().is_empty());
            known.name()
        })
        .collect();
    assert_eq!(portable, ["bytes", "words", "words-shift"]);
    for known in known() {
        assert!(!known.summary().is_empty() && !format!("{known:?}").is_empty(), "{}", known.name());
    }
    assert!(haul_copy::fault::fixup(0).is_none());
    assert!(Routine::best().name() == Routine::by_name("auto").unwrap().name());
}
