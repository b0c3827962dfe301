//! Control messages, which carry what the kernel says beside a message's payload (cmsg(3)).
//!
//! Read from the bytes and not through `CMSG_NXTHDR`, which would be pointers into a buffer: the layout is the kernel's
//! own, `struct cmsghdr` of include/linux/socket.h, a length of one machine word, level and kind of 32 bits each, the
//! data, and padding to a machine word.

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ControlMessage<'a> {
    pub(super) level: libc::c_int,
    pub(super) kind: libc::c_int,
    pub(super) data: &'a [u8],
}

/// All of them, up to one that is cut off.
#[inline]
pub(super) fn messages(control: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 8;
    let mut rest = control;
    std::iter::from_fn(move || {
        let (header, _) = rest.split_at_checked(HEADER)?;
        let length = usize::from_ne_bytes(*header.first_chunk()?);
        let level = libc::c_int::from_ne_bytes(*header.get(WORD..)?.first_chunk()?);
        let kind = libc::c_int::from_ne_bytes(*header.get(WORD + 4..)?.first_chunk()?);
        let data = rest.get(HEADER..length)?;
        rest = rest.get(length.checked_next_multiple_of(WORD)?..).unwrap_or_default();
        Some(ControlMessage { level, kind, data })
    })
}

/// The size of the datagrams the kernel joined into this one, which it tells where `UDP_GRO` is set and it joined some.
#[inline]
pub(super) fn udp_segment(control: &[u8]) -> Option<u16> {
    let found = messages(control)
        .find(|message| (message.level, message.kind) == (libc::SOL_UDP, libc::UDP_GRO))?
        .data
        .first_chunk()?;
    u16::try_from(libc::c_int::from_ne_bytes(*found)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(parts: &[(libc::c_int, libc::c_int, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (level, kind, data) in parts {
            bytes.extend((16 + data.len()).to_ne_bytes());
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*data);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        bytes
    }

    #[test]
    fn control_messages_are_told_apart_and_a_broken_one_ends_the_list() {
        let bytes = control(&[(1, 2, &[3]), (4, 5, &[]), (6, 7, &[8; 9])]);
        let found: Vec<_> = messages(&bytes).map(|found| (found.level, found.kind, found.data)).collect();
        assert_eq!(found, [(1, 2, &[3_u8][..]), (4, 5, &[]), (6, 7, &[8; 9])]);
        // The last one's padding may be missing, its data may not.
        assert_eq!(messages(&bytes[..bytes.len() - 7]).count(), 3);
        assert_eq!(messages(&bytes[..bytes.len() - 8]).count(), 2);
        for length in [0, 15, usize::MAX, 1 << 40] {
            let mut broken = bytes.clone();
            broken[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(messages(&broken).count(), 0, "a length of {length}");
        }
    }

    #[test]
    fn the_segment_size_is_found_behind_other_messages() {
        let size = 1400_i32.to_ne_bytes();
        let stamp = (libc::SOL_SOCKET, 29, &[0; 16][..]);
        let segment = (libc::SOL_UDP, libc::UDP_GRO, &size[..]);
        assert_eq!(udp_segment(&control(&[stamp, segment])), Some(1400));
        assert_eq!(udp_segment(&control(&[stamp])), None);
        assert_eq!(udp_segment(&control(&[(libc::SOL_UDP, libc::UDP_GRO, &size[..2])])), None);
        assert_eq!(udp_segment(&[]), None);
    }
}
