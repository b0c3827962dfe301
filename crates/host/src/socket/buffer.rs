//! Message buffers whose alignment is chosen, never an accident of the allocator.

use haul_stats::ByteCount;

use crate::error::{Named as _, Result};
use crate::sys::Mapping;

/// The size of a huge page on x86-64 and, with 4 KiB pages, on aarch64 and riscv64. A smaller buffer cannot hold one.
const HUGE: u64 = 2 << 20;

/// Memory that starts at a page boundary, so that an offset into it is an alignment. Zeroed and present from the start:
/// the measured path takes no page fault. Huge pages are asked for where the buffer can hold one.
#[derive(Debug)]
pub struct PageBuffer(Mapping);

impl PageBuffer {
    /// A buffer of `length` bytes, at least one.
    pub fn new(length: ByteCount) -> Result<Self> {
        let object = || format!("{} of page-aligned memory", length.about());
        let too_large = || std::io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = length.as_usize().ok_or_else(too_large).named("map", object)?.max(1);
        let mut mapping = Mapping::new(bytes, length.0 >= HUGE).named("map", object)?;
        // Writing brings in pages of our own; a read would map the shared zero page.
        mapping.bytes_mut().fill(0);
        Ok(Self(mapping))
    }

    /// The memory itself.
    pub(super) fn into_mapping(self) -> Mapping {
        self.0
    }

    /// The length.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.bytes().len()
    }

    /// Always false: a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The bytes from `offset` on; none where `offset` is past the end.
    #[must_use]
    #[inline]
    pub fn at(&self, offset: usize) -> &[u8] {
        self.0.bytes().get(offset..).unwrap_or_default()
    }

    /// The bytes from `offset` on, to write; none where `offset` is past the end.
    #[inline]
    pub fn at_mut(&mut self, offset: usize) -> &mut [u8] {
        self.0.bytes_mut().get_mut(offset..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_the_alignment_and_the_end_is_kept() {
        for length in [0, 1, 4096, 4097, 3 << 20] {
            let mut buffer = PageBuffer::new(ByteCount(length)).expect("map");
            let bytes = buffer.len();
            assert_eq!(bytes as u64, length.max(1));
            for offset in [0, 1, 17, 4095] {
                assert_eq!(buffer.at(offset).len(), bytes.saturating_sub(offset), "{length} at {offset}");
                if offset < bytes {
                    assert_eq!(buffer.at(offset).as_ptr().addr() % 4096, offset);
                    buffer.at_mut(offset)[0] = 1;
                    assert_eq!(buffer.at(offset)[0], 1);
                }
            }
            assert!(buffer.at(bytes + 1).is_empty());
            assert!(buffer.at_mut(usize::MAX).is_empty());
        }
    }

    #[test]
    fn more_memory_than_there_is_is_an_error_that_names_the_size() {
        let error = PageBuffer::new(ByteCount(1 << 60)).expect_err("an exbibyte");
        assert!(error.to_string().contains("1048576 TiB of page-aligned memory"), "{error}");
    }
}
