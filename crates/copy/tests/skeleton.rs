//! Removed as soon as the suite is there.
#[test]
fn a_routine_copies() {
    let routine = haul_copy::Routine::by_name("rep-movsb").unwrap();
    let (from, mut to) = ([7_u8; 40], [0_u8; 40]);
    // SAFETY: both arrays have forty bytes.
    assert_eq!(unsafe { routine.try_copy(to.as_mut_ptr(), from.as_ptr(), 40) }, 0);
    assert_eq!(from, to);
    assert!(haul_copy::fault::fixup(0).is_none());
}
