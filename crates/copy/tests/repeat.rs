//! What measures: copies made again and again, moves within a buffer, and what reads and writes alone.

use haul_copy::{Overlap, Peer, Routine, touch};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_copy_made_again_and_again_copies() {
    for len in [0, 1, 64, 1000, 70_000] {
        let src = pattern(len + 3);
        for routine in Routine::all() {
            let mut dst = vec![0xaa; len + 2];
            routine.repeat(&mut dst[1..=len], &src[3..], 3);
            assert_eq!((dst[0], &dst[1..=len], dst[len + 1]), (0xaa, &src[3..], 0xaa), "{routine:?}: {len}");
            let mut dst = vec![0; len];
            routine.copy_slice(&mut dst, &src[3..]);
            assert_eq!(dst, src[3..], "{routine:?}: {len}");
            let mut none = vec![7; len];
            routine.repeat(&mut none, &src[3..], 0);
            assert!(none.iter().all(|&byte| byte == 7), "{routine:?}: a copy made no times");
        }
        for peer in Peer::all() {
            let mut dst = vec![0; len];
            peer.repeat(&mut dst, &src[3..], 2);
            assert_eq!(dst, src[3..], "{peer:?}: {len}");
        }
    }
}

#[test]
fn a_move_within_a_buffer_is_made_where_the_routine_promises_it_and_refused_elsewhere() {
    let mut promised = 0;
    for routine in Routine::all() {
        for (from, to) in [(100, 40), (41, 40), (40, 40), (40, 41), (0, 700), (700, 0)] {
            let mut buffer = pattern(1400);
            let mut wanted = buffer.clone();
            wanted.copy_within(from..from + 600, to);
            let done = routine.repeat_within(&mut buffer, from, to, 600, 1);
            let apart = from.abs_diff(to) >= 600;
            assert_eq!(
                done,
                apart || to <= from && routine.overlap() == Overlap::Forward,
                "{routine:?}: {from} to {to}"
            );
            assert_eq!(buffer, if done { wanted } else { pattern(1400) }, "{routine:?}: {from} to {to}");
            promised += usize::from(done && !apart);
        }
    }
    assert!(promised > 0, "no routine promises anything");
}

#[test]
#[should_panic(expected = "600 bytes from 801 to 0 of 1400")]
fn a_move_out_of_the_buffer_is_no_move() {
    let _ = Routine::best().repeat_within(&mut [0; 1400], 801, 0, 600, 1);
}

#[test]
#[should_panic(expected = "a copy from 3 bytes to 2")]
fn lengths_that_differ_are_no_copy() {
    Routine::best().repeat(&mut [0; 2], &[0; 3], 1);
}

#[test]
fn stores_reach_every_byte_of_a_slice_and_no_other() {
    type Store = fn(&mut [u8], u8);
    for (name, store) in [("write", touch::write as Store), ("stream", touch::stream)] {
        for offset in [0, 1, 63] {
            for len in [0, 1, 15, 64, 300] {
                let mut buffer = vec![1; 512];
                store(&mut buffer[offset..offset + len], 2);
                let right =
                    (0..512).all(|at| buffer[at] == if (offset..offset + len).contains(&at) { 2 } else { 1 });
                assert!(right, "{name}: {len} at {offset}");
            }
        }
    }
}

#[test]
fn reading_and_flushing_change_nothing() {
    let bytes = pattern(5000);
    for offset in [0, 1, 63] {
        touch::read(&bytes[offset..]);
        assert_eq!(
            touch::flush(&bytes[offset..]),
            cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
        );
    }
    touch::read(&[]);
    assert_eq!(touch::flush(&[]), cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
    assert_eq!(bytes, pattern(5000));
}
