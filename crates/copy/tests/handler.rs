//! The handler among other handlers, masks, stacks and threads: each in a process of its own, because some of them die.

use std::hint::black_box;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use haul_copy::{Error, Handler, Routine, Thread};
use libc::{c_int, c_void};

/// This program once more. An emulated one can't be run by its name alone: `scripts/cross.sh` says by what.
fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let Ok(emulator) = std::env::var("HAUL_COPY_EMULATOR") else { return Command::new(program) };
    let mut words = emulator.split_whitespace();
    let mut command = Command::new(words.next().expect("HAUL_COPY_EMULATOR is not empty"));
    command.args(words).arg(program);
    command
}

/// Runs `body` in a child of this test's name, and returns what became of it.
fn child(name: &str, body: fn()) -> Output {
    const MARK: &str = "HAUL_COPY_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        body();
        std::process::exit(0);
    }
    let mut command = this_program();
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    if name == SENT_TO_THE_PROCESS {
        // What is sent to the process goes to whichever thread doesn't block it.
        // SAFETY: it makes system calls only.
        unsafe {
            command.pre_exec(|| {
                block(libc::SIGSEGV, libc::SIG_BLOCK);
                Ok(())
            })
        };
    }
    command.env(MARK, "1").env("RUST_BACKTRACE", "0").output().unwrap()
}

/// The test whose child begins with SIGSEGV blocked in all of its threads.
const SENT_TO_THE_PROCESS: &str = "a_signal_that_is_sent_in_the_middle_of_a_copy_is_no_fault";

#[track_caller]
fn lives(name: &str, body: fn()) {
    let output = child(name, body);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    let ran = String::from_utf8_lossy(&output.stdout);
    assert!(ran.contains("running 1 test"), "no test is called {name}: {ran}");
}

#[track_caller]
fn dies_by(signal: c_int, name: &str, body: fn()) -> String {
    let output = child(name, body);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(signal), "{:?}: {said}", output.status);
    said
}

/// A page, and a page that faults behind it.
fn page_before_hole() -> *mut u8 {
    let (flags, both) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
    let start = unsafe { libc::mmap(null_mut(), 8192, both, flags, -1, 0) }.cast::<u8>();
    // SAFETY: the second page of the mapping just made.
    assert_eq!(unsafe { libc::mprotect(start.wrapping_add(4096).cast(), 4096, libc::PROT_NONE) }, 0);
    start
}

/// A copy of 100 bytes of which 60 are in a hole.
fn faulting_copy(routine: Routine, page: *mut u8) {
    let mut into = [1_u8; 100];
    // SAFETY: the mapping is the test's, and what faults is caught, or the test is about what happens then.
    let left = unsafe { routine.try_copy_in(&mut into, page.wrapping_add(4096 - 40)) };
    assert_eq!(left, 60);
    assert!(into.iter().all(|&byte| byte == 0), "what was there is zero, and so is what was not");
}

fn action(handler: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: all bits zero is the default action with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

fn set_action(signal: c_int, new: &libc::sigaction) -> libc::sigaction {
    let mut old = action(0, 0);
    // SAFETY: both are initialised.
    assert_eq!(unsafe { libc::sigaction(signal, new, &raw mut old) }, 0);
    old
}

fn get_action(signal: c_int) -> libc::sigaction {
    let mut old = action(0, 0);
    // SAFETY: a null new action only asks.
    assert_eq!(unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) }, 0);
    old
}

fn block(signal: c_int, how: c_int) {
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it is initialised.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const set, null_mut()) }, 0);
}

/// A load that is nobody's copy.
fn wild_load() {
    // SAFETY: not at all: the test is about what happens.
    black_box(unsafe { black_box(std::ptr::without_provenance::<u8>(16)).read_volatile() });
}

#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn overflow(depth: u64) -> u64 {
    let here = black_box([depth; 64]);
    overflow(depth + 1) + here[black_box(7)]
}

fn thousand_faults_on_four_threads() {
    let handler = Handler::install().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let handler = &handler;
            scope.spawn(move || {
                let _thread = handler.thread().unwrap();
                let page = page_before_hole();
                for turn in 0..1000 {
                    let routine = Routine::all().nth(turn % Routine::all().count()).unwrap();
                    faulting_copy(routine, page);
                }
            });
        }
    });
}

#[test]
fn a_thousand_faults_in_a_row_from_four_threads() {
    lives("a_thousand_faults_in_a_row_from_four_threads", thousand_faults_on_four_threads);
}

/// Rust's own handler is there first; it is chained, takes itself out, and the process ends as it says.
#[test]
fn a_stack_overflow_after_them_still_dies_loudly() {
    let said = dies_by(libc::SIGABRT, "a_stack_overflow_after_them_still_dies_loudly", || {
        thousand_faults_on_four_threads();
        let handler = Handler::install().unwrap();
        let _thread = handler.thread().unwrap();
        std::thread::Builder::new().name("deep".into()).spawn(|| overflow(0)).unwrap().join().unwrap();
    });
    assert!(said.contains("thread 'deep'") && said.contains("has overflowed its stack"), "{said}");
}

#[test]
fn a_wild_pointer_still_dies_of_it() {
    dies_by(libc::SIGSEGV, "a_wild_pointer_still_dies_of_it", || {
        let handler = Handler::install().unwrap();
        let _thread = handler.thread().unwrap();
        faulting_copy(Routine::best(), page_before_hole());
        wild_load();
    });
}

/// The kernel doesn't let a fault be ignored, and neither do we, or it would come for ever.
#[test]
fn a_wild_pointer_dies_where_the_signal_was_ignored() {
    dies_by(libc::SIGSEGV, "a_wild_pointer_dies_where_the_signal_was_ignored", || {
        set_action(libc::SIGSEGV, &action(libc::SIG_IGN, 0));
        let _handler = Handler::install().unwrap();
        wild_load();
    });
}

#[test]
fn a_signal_that_was_sent_is_ignored_where_it_was_ignored() {
    lives("a_signal_that_was_sent_is_ignored_where_it_was_ignored", || {
        set_action(libc::SIGSEGV, &action(libc::SIG_IGN, 0));
        let _handler = Handler::install().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
    });
}

#[test]
fn a_signal_that_was_sent_ends_the_process_where_it_did() {
    dies_by(libc::SIGBUS, "a_signal_that_was_sent_ends_the_process_where_it_did", || {
        set_action(libc::SIGBUS, &action(libc::SIG_DFL, 0));
        let _handler = Handler::install().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGBUS) };
    });
}

#[test]
fn a_thread_that_blocks_the_signal_is_told_before_it_copies() {
    lives("a_thread_that_blocks_the_signal_is_told_before_it_copies", || {
        let handler = Handler::install().unwrap();
        for (signal, name) in [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGBUS, "SIGBUS")] {
            let before = handler.thread().unwrap();
            block(signal, libc::SIG_BLOCK);
            let error = handler.thread().unwrap_err();
            assert!(matches!(error, Error::Blocked { signal } if signal == name));
            assert!(error.to_string().contains("unblock it"), "{error}");
            assert!(before.check().is_err());
            block(signal, libc::SIG_UNBLOCK);
            before.check().unwrap();
            handler.thread().unwrap();
        }
    });
}

static PAGE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn copies(_signal: c_int) {
    faulting_copy(Routine::best(), std::ptr::with_exposed_provenance_mut(PAGE.load(Ordering::Relaxed)));
}

/// A copy that faults in the handler of another signal, and in an earlier handler of the same one.
#[test]
fn a_fault_inside_another_handler_is_caught() {
    lives("a_fault_inside_another_handler_is_caught", || {
        PAGE.store(page_before_hole().expose_provenance(), Ordering::Relaxed);
        set_action(libc::SIGUSR1, &action(copies as *const () as usize, 0));
        // One that wants to be asked while it runs.
        set_action(libc::SIGSEGV, &action(copies as *const () as usize, libc::SA_NODEFER));
        let handler = Handler::install().unwrap();
        let _thread = handler.thread().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGUSR1) };
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
        // And the other way round: nothing is left blocked.
        handler.thread().unwrap();
    });
}

static RAISED: AtomicU32 = AtomicU32::new(0);

extern "C" fn raises_another(signal: c_int) {
    if RAISED.fetch_add(1, Ordering::Relaxed) < 1000 {
        // SAFETY: it takes any signal.
        unsafe { libc::raise(signal) };
    }
}

#[test]
fn an_earlier_handler_may_raise_its_own_signal_again_and_again() {
    lives("an_earlier_handler_may_raise_its_own_signal_again_and_again", || {
        set_action(libc::SIGSEGV, &action(raises_another as *const () as usize, 0));
        let _handler = Handler::install().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
        assert_eq!(RAISED.load(Ordering::Relaxed), 1001);
        faulting_copy(Routine::best(), page_before_hole());
    });
}

#[test]
fn a_signal_that_is_only_sent_takes_no_copys_handler_away() {
    lives("a_signal_that_is_only_sent_takes_no_copys_handler_away", || {
        // Below ours is the standard library's, which gives up at the first signal that is no overflow.
        let handler = Handler::install().unwrap();
        let thread = handler.thread().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
        thread.check().unwrap();
        faulting_copy(Routine::best(), page_before_hole());
    });
}

#[test]
fn a_token_that_goes_takes_no_stack_from_another_and_dead_levels_are_used_again() {
    lives("a_token_that_goes_takes_no_stack_from_another_and_dead_levels_are_used_again", || {
        for _ in 0..30 {
            let handler = Handler::install().unwrap();
            set_action(libc::SIGSEGV, &action(libc::SIG_DFL, 0));
            drop(handler);
        }
        let handler = Handler::install().unwrap();
        let other = handler.thread().unwrap();
        handler.thread().unwrap().check().unwrap();
        other.check().unwrap();
        faulting_copy(Routine::best(), page_before_hole());
    });
}

/// Goes down the stack until `left` bytes are left above `limit`, and copies there.
#[inline(never)]
fn near_the_end(limit: usize, left: usize, page: *mut u8) {
    let here = black_box([0_u8; 128]);
    if here.as_ptr().addr() - limit > left {
        near_the_end(limit, left, page);
    } else {
        let mut byte = 7_u8;
        // SAFETY: as in `faulting_copy`, with little on the stack.
        let left = unsafe { Routine::best().try_copy(&raw mut byte, page.wrapping_add(4096), 1) };
        if left != 1 {
            std::process::abort();
        }
    }
    black_box(here);
}

const STACK: usize = 256 << 10;
/// Less than the frame of the kernel with the registers of AVX-512, which is 2696 bytes, or with those of riscv64 without
/// vectors, some 900; enough for a call.
const LEFT: usize = if cfg!(target_arch = "riscv64") { 640 } else { 1536 };

fn limit_of_this_stack() -> usize {
    // SAFETY: all bits zero is a place to write to.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: it gives the attributes of this thread.
    let myself = unsafe { libc::pthread_self() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::pthread_getattr_np(myself, &raw mut attributes) }, 0);
    let (mut start, mut len) = (null_mut::<c_void>(), 0);
    // SAFETY: it was just filled in.
    let got = unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut len) };
    assert_eq!(got, 0);
    start.addr()
}

extern "C" fn without_a_signal_stack(_: *mut c_void) -> *mut c_void {
    let page = page_before_hole();
    let handler = Handler::install().unwrap();
    {
        let _thread: Thread<'_> = handler.thread().unwrap();
        near_the_end(limit_of_this_stack(), LEFT, page);
    }
    // It is the thread's until it ends: another token may rely on it.
    let mut stack = libc::stack_t { ss_sp: null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: a null new stack only asks.
    assert_eq!(unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) }, 0);
    assert_eq!(stack.ss_flags & libc::SS_DISABLE, 0);
    null_mut()
}

#[test]
fn a_fault_on_a_nearly_full_stack_is_caught() {
    lives("a_fault_on_a_nearly_full_stack_is_caught", || {
        // A thread of the standard library, which has a stack for handlers.
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(|| {
                let handler = Handler::install().unwrap();
                let _thread = handler.thread().unwrap();
                near_the_end(limit_of_this_stack(), LEFT, page_before_hole());
            })
            .unwrap()
            .join()
            .unwrap();
        // And a thread of C, which has none.
        let mut thread = 0;
        // SAFETY: the start function has the right type, and null attributes are the default.
        let made = unsafe {
            libc::pthread_create(&raw mut thread, std::ptr::null(), without_a_signal_stack, null_mut())
        };
        assert_eq!(made, 0);
        // SAFETY: it was just made, and is joined once.
        assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
    });
}

extern "C" fn without_the_token(_: *mut c_void) -> *mut c_void {
    let page = page_before_hole();
    let _handler = Handler::install().unwrap();
    near_the_end(limit_of_this_stack(), LEFT, page);
    null_mut()
}

/// That the stack is as full as the test above wants it to be.
#[test]
fn without_a_stack_for_handlers_it_is_fatal() {
    dies_by(libc::SIGSEGV, "without_a_stack_for_handlers_it_is_fatal", || {
        let mut thread = 0;
        // SAFETY: the start function has the right type, and null attributes are the default.
        unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), without_the_token, null_mut()) };
        // SAFETY: it was just made, and is joined once.
        unsafe { libc::pthread_join(thread, null_mut()) };
    });
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static CODE: AtomicI32 = AtomicI32::new(-1000);
static BLOCKED: AtomicU32 = AtomicU32::new(0);

extern "C" fn with_one_argument(_signal: c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a null new set only asks.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    let mut blocked = 0;
    for signal in [libc::SIGSEGV, libc::SIGUSR2] {
        // SAFETY: it is initialised.
        if unsafe { libc::sigismember(&raw const set, signal) } == 1 {
            blocked |= 1 << signal;
        }
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
}

extern "C" fn with_three_arguments(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    assert!(!context.is_null());
    // SAFETY: the kernel gave it.
    CODE.store(unsafe { (*info).si_code }, Ordering::Relaxed);
    with_one_argument(signal);
}

/// The earlier handler gets what it was registered for: arguments, mask, once or always.
#[test]
fn an_earlier_handler_is_called_as_it_asked() {
    lives("an_earlier_handler_is_called_as_it_asked", || {
        let send = || {
            let before = CALLS.load(Ordering::Relaxed);
            // SAFETY: it takes any signal.
            unsafe { libc::raise(libc::SIGSEGV) };
            CALLS.load(Ordering::Relaxed) - before
        };
        let (one, three) =
            (with_one_argument as *const () as usize, with_three_arguments as *const () as usize);
        for (address, flags, masked) in [
            (one, 0, true),
            (one, libc::SA_NODEFER, false),
            (three, libc::SA_SIGINFO, true),
            (three, libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK, false),
        ] {
            let mut earlier = action(address, flags);
            // SAFETY: it is initialised.
            unsafe { libc::sigaddset(&raw mut earlier.sa_mask, libc::SIGUSR2) };
            set_action(libc::SIGSEGV, &earlier);
            CODE.store(-1000, Ordering::Relaxed);
            let handler = Handler::install().unwrap();
            assert_eq!(send(), 1);
            assert_eq!(CODE.load(Ordering::Relaxed), if address == three { libc::SI_TKILL } else { -1000 });
            let own = if masked { 1 << libc::SIGSEGV } else { 0 };
            assert_eq!(BLOCKED.load(Ordering::Relaxed), own | 1 << libc::SIGUSR2);
            // Nothing stays blocked, and a copy's fault is none of its business.
            handler.thread().unwrap().check().unwrap();
            let before = CALLS.load(Ordering::Relaxed);
            faulting_copy(Routine::best(), page_before_hole());
            assert_eq!(CALLS.load(Ordering::Relaxed), before);
            drop(handler);
            let restored = get_action(libc::SIGSEGV);
            assert_eq!(restored.sa_sigaction, address);
            assert_eq!(restored.sa_flags & !0x0400_0000, flags, "but for SA_RESTORER");
        }
    });
}

#[test]
fn an_earlier_handler_for_once_is_called_once() {
    dies_by(libc::SIGSEGV, "an_earlier_handler_for_once_is_called_once", || {
        set_action(libc::SIGSEGV, &action(with_one_argument as *const () as usize, libc::SA_RESETHAND));
        let _handler = Handler::install().unwrap();
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
    });
}

type Three = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What a later handler found when it came.
static BEFORE_LATER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn passes_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let before = BEFORE_LATER.load(Ordering::Relaxed);
    // SAFETY: the test put the address of such a handler there.
    let call = unsafe { std::mem::transmute::<usize, Three>(before) };
    call(signal, info, context);
}

#[test]
fn a_handler_that_came_later_is_detected_and_lived_with() {
    lives("a_handler_that_came_later_is_detected_and_lived_with", || {
        // One fault for each copy.
        let bytes = Routine::by_name("bytes").unwrap();
        let page = page_before_hole();
        let first = Handler::install().unwrap();
        let thread = first.thread().unwrap();
        let ours = get_action(libc::SIGSEGV).sa_sigaction;
        let later = set_action(
            libc::SIGSEGV,
            &action(passes_on as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER),
        );
        BEFORE_LATER.store(later.sa_sigaction, Ordering::Relaxed);
        // It passes on what it doesn't know, so it works; but we can't know that.
        faulting_copy(bytes, page);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        let error = thread.check().unwrap_err();
        assert!(matches!(error, Error::Replaced { signal: "SIGSEGV" }), "{error}");
        assert!(error.to_string().contains("install again"), "{error}");
        // Over it again. It isn't asked for copies, and the two don't call each other in circles.
        let second = Handler::install().unwrap();
        second.thread().unwrap();
        faulting_copy(bytes, page);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        assert_ne!(get_action(libc::SIGSEGV).sa_sigaction, ours, "another level");
        drop(second);
        faulting_copy(bytes, page);
        // The last one goes: what is on top is taken out, what is buried stays and works.
        drop(first);
        assert_eq!(get_action(libc::SIGSEGV).sa_sigaction, passes_on as *const () as usize);
        faulting_copy(bytes, page);
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
        // The later one goes, and ours is on top again: the next handle shares it, and takes it out.
        set_action(libc::SIGSEGV, &later);
        let third = Handler::install().unwrap();
        assert_eq!(get_action(libc::SIGSEGV).sa_sigaction, ours);
        faulting_copy(bytes, page);
        drop(third);
        assert_ne!(get_action(libc::SIGSEGV).sa_sigaction, ours);
    });
}

/// A genuine fault goes through all of them to the bottom, once.
#[test]
fn a_wild_pointer_dies_below_a_handler_that_came_later() {
    dies_by(libc::SIGSEGV, "a_wild_pointer_dies_below_a_handler_that_came_later", || {
        let _first = Handler::install().unwrap();
        let flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        let later = set_action(libc::SIGSEGV, &action(passes_on as *const () as usize, flags));
        BEFORE_LATER.store(later.sa_sigaction, Ordering::Relaxed);
        let _second = Handler::install().unwrap();
        wild_load();
    });
}

#[test]
fn burying_it_too_often_is_an_error() {
    lives("burying_it_too_often_is_an_error", || {
        let mut handlers = Vec::new();
        let error = loop {
            match Handler::install() {
                Ok(handler) => handlers.push(handler),
                Err(error) => break error,
            }
            assert!(handlers.len() < 100);
            set_action(libc::SIGBUS, &action(with_one_argument as *const () as usize, 0));
        };
        assert!(matches!(error, Error::Buried { signal: "SIGBUS" }), "{error}");
        assert!(error.to_string().contains("SIGBUS"), "{error}");
    });
}

#[test]
fn handles_are_shares_and_may_go_in_any_order() {
    lives("handles_are_shares_and_may_go_in_any_order", || {
        let before = (get_action(libc::SIGSEGV).sa_sigaction, get_action(libc::SIGBUS).sa_sigaction);
        let page = page_before_hole();
        let first = Handler::install().unwrap();
        let second = first.clone();
        let third = Handler::install().unwrap();
        drop(first);
        faulting_copy(Routine::best(), page);
        drop(third);
        faulting_copy(Routine::best(), page);
        drop(second);
        assert_eq!((get_action(libc::SIGSEGV).sa_sigaction, get_action(libc::SIGBUS).sa_sigaction), before);
    });
}

fn set_errno(to: c_int) {
    // SAFETY: it is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { errno.write(to) };
}

/// `errno` belongs to what was interrupted.
#[test]
fn a_fault_leaves_errno_alone() {
    lives("a_fault_leaves_errno_alone", || {
        let handler = Handler::install().unwrap();
        let _thread = handler.thread().unwrap();
        let page = page_before_hole();
        set_errno(4242);
        faulting_copy(Routine::best(), page);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(4242));
    });
}

/// Signals that were sent, and those of them that came in the middle of a copy.
static SENT: AtomicU32 = AtomicU32::new(0);
static MIDWAY: AtomicU32 = AtomicU32::new(0);

extern "C" fn counts_what_was_sent(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel gave the context.
    let counter =
        unsafe { (&raw const (*context).uc_mcontext.gregs[libc::REG_RIP as usize]).cast::<usize>() };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let counter = unsafe { (&raw const (*context).uc_mcontext.pc).cast::<usize>() };
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as above; the first of the general registers is the counter.
    let counter = unsafe { (&raw const (*context).uc_mcontext.__gregs[0]).cast::<usize>() };
    // SAFETY: it points into the context.
    let midway = haul_copy::fault::fixup(unsafe { counter.read() }).is_some();
    MIDWAY.fetch_add(u32::from(midway), Ordering::Relaxed);
    SENT.fetch_add(1, Ordering::Relaxed);
}

/// Says so when it goes, also where an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for what another thread does, for a while.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::yield_now();
    }
}

/// `kill` and `pthread_kill` in the middle of a copy: it goes on, and whoever was there before is called.
#[test]
fn a_signal_that_is_sent_in_the_middle_of_a_copy_is_no_fault() {
    lives(SENT_TO_THE_PROCESS, || {
        const LEN: usize = 256 << 10;
        /// Sent at most so often, until enough came midway.
        const MOST: u32 = 20_000;
        block(libc::SIGSEGV, libc::SIG_UNBLOCK);
        let earlier = action(counts_what_was_sent as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART);
        set_action(libc::SIGSEGV, &earlier);
        let handler = Handler::install().unwrap();
        let thread = handler.thread().unwrap();
        // Routines that are nearly all of the time at an instruction of the exception table.
        let routine = ["rep-movsb", "ldrb", "lb"].into_iter().find_map(Routine::by_name).unwrap();
        // SAFETY: it gives the name of this thread.
        let myself = unsafe { libc::pthread_self() };
        let process = libc::pid_t::try_from(std::process::id()).unwrap();
        let over = AtomicBool::new(false);
        // An emulator keeps a thread's mask of SIGSEGV to itself, as it needs the signal: what is sent to the process the
        // kernel may give to a thread whose guest blocks it, when this one is off its CPU with another signal waiting.
        // There it stays. Seen once; natively both ways are taken.
        let to_the_process = std::env::var_os("HAUL_COPY_EMULATOR").is_none();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = Over(&over);
                block(libc::SIGSEGV, libc::SIG_BLOCK);
                for turn in 0..MOST {
                    if to_the_process && turn % 2 == 0 {
                        // SAFETY: it takes any process and any signal.
                        unsafe { libc::kill(process, libc::SIGSEGV) };
                    } else {
                        // SAFETY: the thread waits for this one.
                        unsafe { libc::pthread_kill(myself, libc::SIGSEGV) };
                    }
                    until("a call of the earlier handler", || SENT.load(Ordering::Relaxed) > turn);
                    if MIDWAY.load(Ordering::Relaxed) >= 100 {
                        break;
                    }
                }
            });
            let (source, mut copied) = (vec![7_u8; LEN], vec![0_u8; LEN]);
            while !over.load(Ordering::Relaxed) {
                copied.fill(0);
                // SAFETY: both have that many bytes, and are apart.
                let left = unsafe { thread.try_copy(routine, copied.as_mut_ptr(), source.as_ptr(), LEN) };
                if left != 0 || copied != source {
                    // The other thread would be waited for.
                    eprintln!("a signal that was sent ended a copy: {left} bytes left");
                    std::process::abort();
                }
            }
        });
        let midway = MIDWAY.load(Ordering::Relaxed);
        assert!(midway >= 100, "{midway} of {} signals came midway", SENT.load(Ordering::Relaxed));
    });
}

extern "C" fn spoils_errno(_signal: c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    set_errno(99);
}

#[test]
fn errno_is_kept_whatever_the_earlier_handler_does() {
    lives("errno_is_kept_whatever_the_earlier_handler_does", || {
        set_action(libc::SIGSEGV, &action(spoils_errno as *const () as usize, 0));
        let _handler = Handler::install().unwrap();
        set_errno(4242);
        // SAFETY: it takes any signal.
        unsafe { libc::raise(libc::SIGSEGV) };
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(4242));
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    });
}

/// What a call that waits does when the signal comes is the earlier handler's to say.
#[test]
fn an_interrupted_call_goes_on_where_the_earlier_handler_wants_it() {
    lives("an_interrupted_call_goes_on_where_the_earlier_handler_wants_it", || {
        for flags in [libc::SA_RESTART, 0] {
            set_action(libc::SIGSEGV, &action(with_one_argument as *const () as usize, flags));
            let _handler = Handler::install().unwrap();
            let mut ends = [0; 2];
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            let (waiting, over) = (AtomicUsize::new(0), AtomicBool::new(false));
            let read = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let mut byte = 0_u8;
                    // SAFETY: it gives the name of this thread.
                    waiting
                        .store(usize::try_from(unsafe { libc::pthread_self() }).unwrap(), Ordering::Relaxed);
                    // SAFETY: room for a byte.
                    let got = unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
                    let outcome = (got, std::io::Error::last_os_error().raw_os_error());
                    over.store(true, Ordering::Relaxed);
                    outcome
                });
                until("a thread that reads", || waiting.load(Ordering::Relaxed) != 0);
                let thread = libc::pthread_t::try_from(waiting.load(Ordering::Relaxed)).unwrap();
                for _ in 0..if flags == 0 { 5000 } else { 50 } {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    // SAFETY: the thread is joined below, and not before.
                    unsafe { libc::pthread_kill(thread, libc::SIGSEGV) };
                    std::thread::sleep(Duration::from_millis(2));
                }
                // So that it ends, whatever happens.
                // SAFETY: one byte to read.
                assert_eq!(unsafe { libc::write(ends[1], c"x".as_ptr().cast(), 1) }, 1);
                reader.join().unwrap()
            });
            if flags == 0 {
                assert_eq!(read, (-1, Some(libc::EINTR)));
            } else {
                assert_eq!(read.0, 1, "a call that was to be restarted was not: {read:?}");
            }
            for end in ends {
                // SAFETY: nobody uses it any more.
                unsafe { libc::close(end) };
            }
        }
    });
}
