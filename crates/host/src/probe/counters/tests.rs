use super::*;

/// Snapshots of one group of two events, from what each place would say.
fn layout(of: Of, places: &[Place], states: [State; 2], watchdog: bool) -> Arc<Layout> {
    let [first, second] = states;
    let members = vec![
        Member { event: "cycles".into(), state: first },
        Member { event: "instructions".into(), state: second },
    ];
    let places = places.iter().map(|&place| PlaceLayout { place, members: vec![0, 1] }).collect();
    Arc::new(Layout { of, watchdog, groups: vec![GroupLayout { members, places }] })
}

fn window(layout: &Arc<Layout>, then: &[[u64; 4]], now: &[[u64; 4]]) -> Vec<Count> {
    let at = |words: &[[u64; 4]]| Snapshot {
        layout: Arc::clone(layout),
        words: vec![words.iter().map(|words| words.to_vec()).collect()],
    };
    at(now).since(&at(then))
}

const COUNTING: [State; 2] = [State::Counting, State::Counting];

fn thread() -> Of {
    Of::Thread(crate::thread::current_tid())
}

#[test]
fn a_count_is_scaled_by_the_times_of_its_window_and_not_by_those_since_it_was_opened() {
    let one = layout(thread(), &[Place::Thread], COUNTING, false);
    // Before the window it ran a tenth of the time; in it, half.
    let counts = window(&one, &[[10_000, 1000, 50, 90]], &[[12_000, 2000, 150, 290]]);
    assert_eq!(counts.iter().map(|count| count.value).collect::<Vec<_>>(), [Some(200), Some(400)]);
    assert!(counts.iter().all(|count| count.estimate && count.enabled.as_nanos() == 2000), "{counts:?}");
    assert_eq!(counts[0].running.as_nanos(), 1000);
    let said = counts[0].reason.as_deref().expect("said");
    assert!(said.starts_with("an estimate: it counted 50.0 % of the time"), "{said}");
}

#[test]
fn below_half_of_the_time_the_estimate_is_called_rough_and_at_none_there_is_no_value() {
    let one = layout(thread(), &[Place::Thread], COUNTING, true);
    let then = [[0, 0, 0, 0]];
    for (enabled, running, value, estimate, says) in [
        (1000, 1000, Some(100), false, None),
        (1000, 999, Some(100), true, Some("an estimate: ")),
        (1000, 499, Some(200), true, Some("a rough estimate: it counted 49.9 %")),
        (
            1000,
            0,
            None,
            false,
            Some("it never got a counter: others had them all the time (kernel.nmi_watchdog = 1"),
        ),
        // A thread that slept all through the window was nowhere to be counted, and did nothing.
        (0, 0, Some(100), false, None),
    ] {
        let count = &window(&one, &then, &[[enabled, running, 100, 0]])[0];
        assert_eq!((count.value, count.estimate), (value, estimate), "{enabled} {running}");
        match says {
            None => assert_eq!(count.reason, None),
            Some(says) => {
                assert!(count.reason.as_deref().is_some_and(|said| said.contains(says)), "{count:?}");
            }
        }
    }
}

#[test]
fn of_the_host_each_cpu_is_scaled_by_its_own_times() {
    let both = layout(Of::Host, &[Place::Cpu(0), Place::Cpu(1)], COUNTING, false);
    let then = [[0, 0, 0, 0], [0, 0, 0, 0]];
    // CPU 0 did all of the work and was counted a tenth of the time. The ratio of sums would make 273 of it.
    let count = &window(&both, &then, &[[1000, 100, 150, 0], [1000, 1000, 0, 0]])[0];
    assert_eq!((count.value, count.estimate), (Some(1500), true));
    assert_eq!((count.enabled.as_nanos(), count.running.as_nanos()), (2000, 1100));
    let count = &window(&both, &then, &[[1000, 1000, 10, 0], [1000, 0, 0, 0]])[0];
    assert_eq!(count.value, None, "a CPU that was never counted is unknown, not idle");
    assert!(count.reason.as_deref().is_some_and(|said| said.contains("on CPU 1")), "{count:?}");
}

#[test]
fn a_thread_on_two_kinds_of_cores_is_counted_by_turns_and_that_is_no_estimate() {
    let hybrid = layout(thread(), &[Place::Cores(4), Place::Cores(10)], COUNTING, false);
    let then = [[0, 0, 0, 0], [0, 0, 0, 0]];
    let count = &window(&hybrid, &then, &[[1000, 180, 40, 0], [1000, 820, 60, 0]])[0];
    assert_eq!((count.value, count.estimate, count.reason.as_deref()), (Some(100), false, None));
    let count = &window(&hybrid, &then, &[[1000, 90, 20, 0], [1000, 410, 30, 0]])[0];
    assert_eq!((count.value, count.estimate), (Some(100), true), "half of the time in all");
}

#[test]
fn what_is_absent_says_why_and_keeps_its_place_among_the_others() {
    let states = [State::Absent("no PMU".into()), State::Partly("of user mode only: …".into())];
    let [first, second] = states;
    let members = vec![
        Member { event: "cycles".into(), state: first },
        Member { event: "faults:u".into(), state: second },
    ];
    let places = vec![PlaceLayout { place: Place::Thread, members: vec![1] }];
    let layout =
        Arc::new(Layout { of: thread(), watchdog: false, groups: vec![GroupLayout { members, places }] });
    let at = |words: Vec<u64>| Snapshot { layout: Arc::clone(&layout), words: vec![vec![words]] };
    let counts = at(vec![9, 9, 12]).since(&at(vec![1, 1, 5]));
    assert_eq!((counts[0].value, counts[0].reason.as_deref()), (None, Some("no PMU")));
    assert_eq!((counts[1].value, counts[1].estimate), (Some(7), false));
    assert_eq!(counts[1].reason.as_deref(), Some("of user mode only: …"));
    let unread = at(Vec::new()).since(&at(vec![1, 1, 5]));
    assert!(unread[1].reason.as_deref().is_some_and(|said| said.contains("could not be read")), "{unread:?}");
    let json = serde_json::to_string(&counts).expect("json");
    assert_eq!(serde_json::from_str::<Vec<Count>>(&json).expect("back"), counts);
}

#[test]
fn counts_that_step_back_and_counts_beyond_all_bounds_do_not_wrap() {
    let one = layout(thread(), &[Place::Thread], COUNTING, false);
    let counts = window(&one, &[[100, 100, 100, 0]], &[[200, 200, 50, 0]]);
    assert_eq!(counts[0].value, Some(0));
    let counts = window(&one, &[[0, 0, 0, 0]], &[[u64::MAX, 1, u64::MAX, 1]]);
    assert_eq!((counts[0].value, counts[1].value), (Some(u64::MAX), Some(u64::MAX)));
}

#[test]
fn touching_fresh_pages_is_one_fault_each_and_touching_them_again_none() {
    const PAGES: usize = 1000;
    let mut area = sys::Mapping::small(PAGES * sys::page_size()).expect("memory");
    let events = ["page-faults", "minor-faults", "major-faults"].map(|name| Event::parse(name).expect(name));
    let counters = Counters::open(&[events.to_vec()], thread());
    let mut touch = || {
        let before = counters.read();
        for page in area.bytes_mut().chunks_mut(sys::page_size()) {
            page[0] = std::hint::black_box(1);
        }
        let counts = counters.read().since(&before);
        counts.iter().map(|count| count.value.expect("counted")).collect::<Vec<_>>()
    };
    let first = touch();
    // Beside the pages: a page or two of this thread's own stack, heap and code.
    assert!((PAGES as u64..PAGES as u64 + 8).contains(&first[0]), "{first:?} faults of {PAGES} pages");
    assert_eq!(first[1] + first[2], first[0]);
    let again = touch();
    assert!(again[0] < 8, "{again:?}");
}

#[test]
fn a_name_that_is_none_is_cut_in_what_is_said_of_it() {
    for name in
        ["x".repeat(5000), format!("{}:{}", "é".repeat(3000), "-"), format!("cpu/{}", "y".repeat(4000))]
    {
        let text = Event::parse(&name).expect_err("no event").to_string();
        assert!(text.chars().count() < 300 && text.contains('…'), "{text}");
    }
    let text = Event::parse("cyclse").expect_err("no event").to_string();
    assert!(text.contains("'cyclse'") && !text.contains('…'), "{text}");
}
