//! Reads and writes of memory and nothing else: what a copy can be held against, and the state of the caches before one.
//!
//! [`read`] loads every byte once, [`write()`] stores every byte once, in the widest registers that this CPU has and this module
//! knows (AVX-512, AVX2 and SSE2 on x86-64, words elsewhere); [`stream`] stores past the caches where there is an
//! instruction for it. [`flush`] takes bytes out of all caches. Every access is volatile or an instruction of its own: the
//! compiler can leave none out, and can make no call of `memset` from them.

/// How a slice is taken apart: what is before the first whole vector, the vectors, and what is behind them.
#[cfg(all(target_arch = "x86_64", any(target_os = "linux", target_os = "none"), not(miri)))]
macro_rules! vectors {
    ($vector:ty, $name:ident, $feature:literal) => {
        /// Loads every byte once.
        #[target_feature(enable = $feature)]
        fn $name(bytes: &[u8]) {
            // SAFETY: any bytes are a vector of integers.
            let (head, body, tail) = unsafe { bytes.align_to::<$vector>() };
            one_by_one(head);
            for vector in body {
                // SAFETY: a reference.
                let _ = unsafe { core::ptr::read_volatile(vector) };
            }
            one_by_one(tail);
        }
    };
}

/// Loads every byte of `bytes`.
#[inline]
pub fn read(bytes: &[u8]) {
    machine::read(bytes);
}

/// Stores `byte` to every byte of `bytes`.
#[inline]
pub fn write(bytes: &mut [u8], byte: u8) {
    machine::write(bytes, byte);
}

/// Stores `byte` to every byte of `bytes`, past the caches where this CPU can, and waits until it is done.
#[inline]
pub fn stream(bytes: &mut [u8], byte: u8) {
    machine::stream(bytes, byte);
}

/// Takes `bytes` out of every cache, in all of the machine. False where there is no instruction for it that this can use.
#[must_use]
pub fn flush(bytes: &[u8]) -> bool {
    machine::flush(bytes)
}

fn one_by_one(bytes: &[u8]) {
    for byte in bytes {
        // SAFETY: a reference.
        let _ = unsafe { core::ptr::read_volatile(byte) };
    }
}

fn store_one_by_one<T: Copy>(to: &mut [T], value: T) {
    for element in to {
        // SAFETY: a reference.
        unsafe { core::ptr::write_volatile(element, value) };
    }
}

#[cfg(all(target_arch = "x86_64", any(target_os = "linux", target_os = "none"), not(miri)))]
mod machine {
    use core::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_clflush, _mm_mfence, _mm_set1_epi8, _mm_sfence, _mm_stream_si128,
        _mm256_set1_epi8, _mm256_stream_si256, _mm512_set1_epi32, _mm512_stream_si512,
    };

    use super::{one_by_one, store_one_by_one};
    use crate::arch::machine::detect;

    /// What `clflush` takes out at once, on every CPU there is.
    const LINE: usize = 64;

    vectors!(__m512i, read_avx512, "avx512f");
    vectors!(__m256i, read_avx2, "avx2");
    vectors!(__m128i, read_sse2, "sse2");

    macro_rules! stores {
        ($vector:ty, $write:ident, $stream:ident, $feature:literal, $set:expr, $store:ident) => {
            #[target_feature(enable = $feature)]
            fn $write(bytes: &mut [u8], byte: u8) {
                // SAFETY: any bytes are a vector of integers, and any vector is bytes.
                let (head, body, tail) = unsafe { bytes.align_to_mut::<$vector>() };
                store_one_by_one(head, byte);
                store_one_by_one(body, $set(byte));
                store_one_by_one(tail, byte);
            }

            #[target_feature(enable = $feature)]
            fn $stream(bytes: &mut [u8], byte: u8) {
                // SAFETY: any bytes are a vector of integers, and any vector is bytes.
                let (head, body, tail) = unsafe { bytes.align_to_mut::<$vector>() };
                store_one_by_one(head, byte);
                let value = $set(byte);
                for vector in body {
                    // SAFETY: a reference, and so aligned.
                    unsafe { $store(core::ptr::from_mut(vector), value) };
                }
                store_one_by_one(tail, byte);
            }
        };
    }

    stores!(
        __m512i,
        write_avx512,
        stream_avx512,
        "avx512f",
        |byte: u8| _mm512_set1_epi32(i32::from_ne_bytes([byte; 4])),
        _mm512_stream_si512
    );
    stores!(
        __m256i,
        write_avx2,
        stream_avx2,
        "avx2",
        |byte: u8| _mm256_set1_epi8(byte.cast_signed()),
        _mm256_stream_si256
    );
    stores!(
        __m128i,
        write_sse2,
        stream_sse2,
        "sse2",
        |byte: u8| _mm_set1_epi8(byte.cast_signed()),
        _mm_stream_si128
    );

    pub(super) fn read(bytes: &[u8]) {
        if detect::avx512() {
            // SAFETY: the CPU has AVX-512 F, and its registers are saved.
            unsafe { read_avx512(bytes) };
        } else if detect::avx2() {
            // SAFETY: the CPU has AVX2, and its registers are saved.
            unsafe { read_avx2(bytes) };
        } else {
            // SAFETY: SSE2 is in every x86-64 CPU.
            unsafe { read_sse2(bytes) };
        }
    }

    pub(super) fn write(bytes: &mut [u8], byte: u8) {
        if detect::avx512() {
            // SAFETY: the CPU has AVX-512 F, and its registers are saved.
            unsafe { write_avx512(bytes, byte) };
        } else if detect::avx2() {
            // SAFETY: the CPU has AVX2, and its registers are saved.
            unsafe { write_avx2(bytes, byte) };
        } else {
            // SAFETY: SSE2 is in every x86-64 CPU.
            unsafe { write_sse2(bytes, byte) };
        }
    }

    pub(super) fn stream(bytes: &mut [u8], byte: u8) {
        if detect::avx512() {
            // SAFETY: the CPU has AVX-512 F, and its registers are saved.
            unsafe { stream_avx512(bytes, byte) };
        } else if detect::avx2() {
            // SAFETY: the CPU has AVX2, and its registers are saved.
            unsafe { stream_avx2(bytes, byte) };
        } else {
            // SAFETY: SSE2 is in every x86-64 CPU.
            unsafe { stream_sse2(bytes, byte) };
        }
        // The stores are not done, and not visible in order, before this.
        // SAFETY: SSE is in every x86-64 CPU.
        unsafe { _mm_sfence() };
    }

    pub(super) fn flush(bytes: &[u8]) -> bool {
        for line in bytes.chunks(LINE) {
            // SAFETY: the address is that of a byte of the slice. Nothing is changed but where the line is kept.
            unsafe { _mm_clflush(line.as_ptr()) };
        }
        if let Some(last) = bytes.last() {
            // SAFETY: as above: a slice that begins within a line ends in one more.
            unsafe { _mm_clflush(core::ptr::from_ref(last)) };
        }
        // SAFETY: SSE2 is in every x86-64 CPU.
        unsafe { _mm_mfence() };
        true
    }
}

#[cfg(not(all(target_arch = "x86_64", any(target_os = "linux", target_os = "none"), not(miri))))]
mod machine {
    use super::{one_by_one, store_one_by_one};

    pub(super) fn read(bytes: &[u8]) {
        // SAFETY: any bytes are a word.
        let (head, body, tail) = unsafe { bytes.align_to::<u64>() };
        one_by_one(head);
        for word in body {
            // SAFETY: a reference.
            let _ = unsafe { core::ptr::read_volatile(word) };
        }
        one_by_one(tail);
    }

    pub(super) fn write(bytes: &mut [u8], byte: u8) {
        // SAFETY: any bytes are a word, and any word is bytes.
        let (head, body, tail) = unsafe { bytes.align_to_mut::<u64>() };
        store_one_by_one(head, byte);
        store_one_by_one(body, u64::from_ne_bytes([byte; 8]));
        store_one_by_one(tail, byte);
    }

    /// No instruction for it is known here: as `write`.
    pub(super) fn stream(bytes: &mut [u8], byte: u8) {
        write(bytes, byte);
    }

    #[cfg(all(target_arch = "aarch64", target_os = "linux", not(miri)))]
    pub(super) fn flush(bytes: &[u8]) -> bool {
        /// The smallest line that `DC CIVAC` may take (`CTR_EL0.DminLine`): too small only costs time.
        const LINE: usize = 16;
        for line in bytes.chunks(LINE).map(<[u8]>::as_ptr).chain(bytes.last().map(core::ptr::from_ref)) {
            // SAFETY: an address of the slice; Linux lets programs use the instruction (SCTLR_EL1.UCI). It changes nothing but
            // where the line is kept.
            unsafe { core::arch::asm!("dc civac, {0}", in(reg) line, options(nostack, preserves_flags)) };
        }
        // SAFETY: a barrier.
        unsafe { core::arch::asm!("dsb sy", options(nostack, preserves_flags)) };
        true
    }

    #[cfg(not(all(target_arch = "aarch64", target_os = "linux", not(miri))))]
    pub(super) fn flush(_bytes: &[u8]) -> bool {
        false
    }
}
