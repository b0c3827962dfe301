//! The handler of SIGSEGV and SIGBUS that turns a fault in a copy into a number, for Linux processes.
//!
//! ```text
//!  a fault ─▶ the kernel ─▶ on_fault
//!                            │ a fault of this thread's instruction, and the instruction is a copy's?
//!                            ├─ yes: go on at its fix-up; nothing else is touched
//!                            └─ no:  whoever was there before, as the kernel would have called it
//! ```
//!
//! # What it does not do
//!
//! It looks at the instruction's address only: never at where the fault was, so a wild pointer of the program itself
//! still ends the process (or reaches the handler that was there before, such as Rust's own for stack overflows). It
//! calls nothing but what POSIX lists as safe in a handler, takes no lock, and touches no thread-local storage.
//!
//! # How it is registered
//!
//! - `SA_ONSTACK`: a fault on a stack that is nearly full finds another one, where the thread has one. Threads of
//!   Rust's standard library do; [`Handler::thread`] gives one to those that don't.
//! - `SA_NODEFER`, and an empty mask: nothing is blocked while it runs, so that a copy in an earlier handler may
//!   fault in its turn, and a handler that is left by `longjmp` leaves nothing blocked behind. For an earlier
//!   handler, what *it* asked to have blocked is blocked while it runs.
//! - `SA_RESTART`, if the earlier handler has it.
//!
//! # Levels
//!
//! Handlers form a stack that nobody owns. If someone else's was put over ours and keeps ours to call, we can't take
//! ours out when the last [`Handler`] goes: it stays, harmless, for as long as it is called. And if we have to go
//! over theirs again, that must be a different one, or the two would call each other for ever. So there are several,
//! equal but for the place where each keeps what came before it, and one that is buried is left alone until it comes
//! to the top again.

use core::cell::RefCell;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::fault;
use crate::routine::Routine;

/// How often someone may have gone over our handler, for good. Programs with that many fault handlers have other
/// problems.
const LEVELS: usize = 8;

/// The two signals of a fault, and their names.
const SIGNALS: [(c_int, &str); 2] = [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGBUS, "SIGBUS")];

type Callback = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// One address for each: comparing functions' addresses taken in several places would not be reliable.
static CALLBACKS: [Callback; LEVELS] = [
    on_fault::<0>,
    on_fault::<1>,
    on_fault::<2>,
    on_fault::<3>,
    on_fault::<4>,
    on_fault::<5>,
    on_fault::<6>,
    on_fault::<7>,
];

/// An action that was there before. Atomics, because a handler reads it while another thread may install.
struct Saved {
    used: AtomicBool,
    handler: AtomicUsize,
    flags: AtomicI32,
    /// Signals 1 to 64, which are all the kernel has.
    mask: AtomicU64,
}

impl Saved {
    const fn none() -> Self {
        Self {
            used: AtomicBool::new(false),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn set(&self, action: &libc::sigaction) {
        self.handler.store(action.sa_sigaction, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask.store(bits(&action.sa_mask), Ordering::Relaxed);
        self.used.store(true, Ordering::Release);
    }

    fn get(&self) -> libc::sigaction {
        let mut action = no_action();
        action.sa_sigaction = self.handler.load(Ordering::Relaxed);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        action.sa_mask = set(self.mask.load(Ordering::Relaxed));
        action
    }
}

/// What was there before each level's handler, for each of [`SIGNALS`].
static SAVED: [[Saved; 2]; LEVELS] = [const { [const { Saved::none() }; 2] }; LEVELS];

/// How many [`Handler`]s there are.
static SHARES: Mutex<usize> = Mutex::new(0);

fn shares() -> MutexGuard<'static, usize> {
    SHARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first 64 signals of a set.
fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: a `sigset_t` is at least eight bytes of plain bits, the first word first, on all 64-bit Linux.
    unsafe { (&raw const *set).cast::<u64>().read_unaligned() }
}

fn set(bits: u64) -> libc::sigset_t {
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::sigset_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as in `bits`.
    unsafe { (&raw mut set).cast::<u64>().write_unaligned(bits) };
    set
}

fn no_action() -> libc::sigaction {
    // SAFETY: all bits zero is the default action with an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn current(signal: c_int) -> libc::sigaction {
    let mut action = no_action();
    // SAFETY: a null new action only asks; `action` is writable. It can't fail for a signal that may be handled.
    unsafe { libc::sigaction(signal, null(), &raw mut action) };
    action
}

/// Which of ours is on top, if one is.
fn top(signal: c_int) -> Option<usize> {
    let action = current(signal);
    CALLBACKS.iter().position(|callback| *callback as usize == action.sa_sigaction)
}

/// How a level's handler is registered over one with these flags.
fn registration(level: usize, over: c_int) -> libc::sigaction {
    let mut ours = no_action();
    ours.sa_sigaction = CALLBACKS[level] as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | over & libc::SA_RESTART;
    ours
}

/// Puts one of ours on top, unless one is there. `which` is the place in [`SIGNALS`].
fn push(which: usize) -> Result<(), Error> {
    let (signal, name) = SIGNALS[which];
    while top(signal).is_none() {
        if matches!(current(signal).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // Nobody is there who could call one of ours, so none of the levels is in use any more.
            for level in &SAVED {
                level[which].used.store(false, Ordering::Release);
            }
        }
        let free = (0..LEVELS).find(|&level| !SAVED[level][which].used.load(Ordering::Acquire));
        let level = free.ok_or(Error::Buried { signal: name })?;
        let earlier = current(signal);
        // Saved first: our handler may be called as soon as it is there.
        SAVED[level][which].set(&earlier);
        let ours = registration(level, earlier.sa_flags);
        let mut replaced = no_action();
        // SAFETY: both actions are initialised, and `on_fault` is a handler with three arguments.
        if unsafe { libc::sigaction(signal, &raw const ours, &raw mut replaced) } != 0 {
            SAVED[level][which].used.store(false, Ordering::Release);
            return Err(Error::last_os("install a handler of faults"));
        }
        if replaced.sa_sigaction != earlier.sa_sigaction {
            // Somebody else installed theirs in between. Back to theirs, and again with another level: this one may
            // be in use by a thread that faulted just now.
            // SAFETY: `replaced` came from the system.
            unsafe { libc::sigaction(signal, &raw const replaced, null_mut()) };
        }
    }
    Ok(())
}

/// Takes ours from the top, as many as there are.
fn pop(which: usize) {
    let (signal, _) = SIGNALS[which];
    while let Some(level) = top(signal) {
        let earlier = SAVED[level][which].get();
        // First, so that a handler that runs now does not take the default it finds for one that it has to mend.
        SAVED[level][which].used.store(false, Ordering::SeqCst);
        // SAFETY: `earlier` is what the system gave when ours was installed.
        unsafe { libc::sigaction(signal, &raw const earlier, null_mut()) };
    }
}

/// The process's handler of faults in copies, for as long as one of these is alive.
///
/// Opt-in, shared, and out of the way of others: see the head of the module's source for how handlers that were there
/// before, or came later, are dealt with.
#[derive(Debug)]
pub struct Handler(());

impl Handler {
    /// Installs the handler of SIGSEGV and SIGBUS, or takes a share in the one that is there.
    ///
    /// Also puts ours on top again if somebody replaced it in the meantime: theirs is then called for what is not a
    /// copy's.
    pub fn install() -> Result<Self, Error> {
        let mut shares = shares();
        for which in 0..SIGNALS.len() {
            if let Err(error) = push(which) {
                if *shares == 0 {
                    (0..which).for_each(pop);
                }
                return Err(error);
            }
        }
        *shares += 1;
        Ok(Self(()))
    }

    /// Makes sure that a fault on *this* thread reaches the handler, and gives the proof.
    ///
    /// Asks the kernel four times, so do it once and keep it, rather than for every copy.
    pub fn thread(&self) -> Result<Thread<'_>, Error> {
        check()?;
        Ok(Thread { handler: PhantomData, not_send: PhantomData })
    }
}

impl Clone for Handler {
    fn clone(&self) -> Self {
        *shares() += 1;
        Self(())
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let mut shares = shares();
        *shares -= 1;
        if *shares == 0 {
            (0..SIGNALS.len()).for_each(pop);
        }
    }
}

/// Whether a fault on this thread, now, would reach the handler; gives the thread a stack for it, where it has none.
pub(crate) fn check() -> Result<(), Error> {
    Stack::see_to_it()?;
    let mut blocked = set(0);
    // SAFETY: a null new set only asks; `blocked` is writable.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut blocked) };
    for (signal, name) in SIGNALS {
        if bits(&blocked) & bit(signal) != 0 {
            return Err(Error::Blocked { signal: name });
        }
        if top(signal).is_none() {
            return Err(Error::Replaced { signal: name });
        }
    }
    Ok(())
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The proof that a fault in a copy on this thread is caught: see [`Handler::thread`].
///
/// It holds until the thread blocks SIGSEGV or SIGBUS, or somebody replaces the handler by one that doesn't pass on
/// what isn't its own; [`Thread::check`] asks again.
#[derive(Debug)]
pub struct Thread<'handler> {
    handler: PhantomData<&'handler Handler>,
    not_send: PhantomData<*mut ()>,
}

impl Thread<'_> {
    /// Whether it still holds.
    pub fn check(&self) -> Result<(), Error> {
        check()
    }

    /// [`Routine::try_copy`], where what faults is known to be caught.
    ///
    /// # Safety
    ///
    /// - `dst..dst + len` and `src..src + len` do not overlap, or only as [`Routine::overlap`] allows, and no Rust
    ///   reference to them is violated by the copy.
    #[inline]
    pub unsafe fn try_copy(&self, routine: Routine, dst: *mut u8, src: *const u8, len: usize) -> usize {
        // SAFETY: this value says that the fix-up is consulted; the rest is the caller's.
        unsafe { routine.try_copy(dst, src, len) }
    }

    /// [`Routine::try_copy_in`], where what faults is known to be caught.
    ///
    /// # Safety
    ///
    /// - `dst.len()` bytes at `src` do not overlap `dst`.
    #[inline]
    pub unsafe fn try_copy_in(&self, routine: Routine, dst: &mut [u8], src: *const u8) -> usize {
        // SAFETY: this value says that the fix-up is consulted; the rest is the caller's.
        unsafe { routine.try_copy_in(dst, src) }
    }
}

/// A stack for handlers, with a page below it that faults.
#[derive(Debug)]
struct Stack {
    start: *mut c_void,
    len: usize,
}

impl Stack {
    /// What an earlier handler may want beyond the frame of the kernel; Rust's own for stack overflows prints a
    /// message.
    const ROOM: usize = 64 << 10;

    /// What our own handler takes of it, and a little.
    const LEAST: usize = 1 << 10;

    /// Gives this thread a stack for handlers, if it has none, until it ends: a token that goes must not take it from another.
    fn see_to_it() -> Result<(), Error> {
        std::thread_local! { static OWN: RefCell<Option<Stack>> = const { RefCell::new(None) } }
        if let Some(stack) = Self::if_missing()? {
            // At the very end of the thread there is nowhere to keep it, and nobody who would need it for long.
            let _ = OWN.try_with(|own| *own.borrow_mut() = Some(stack));
        }
        Ok(())
    }

    /// A stack for this thread's handlers, if it has none, or one that not even the kernel's frame fits on.
    fn if_missing() -> Result<Option<Self>, Error> {
        let mut present = no_stack();
        // SAFETY: a null new stack only asks; `present` is writable.
        if unsafe { libc::sigaltstack(null(), &raw mut present) } != 0 {
            return Err(Error::last_os("ask for the stack of signal handlers"));
        }
        // SAFETY: it only reads the process's own table. The frame has the vector registers, which grew beyond what
        // MINSIGSTKSZ was made for.
        let frame = usize::try_from(unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) }).unwrap_or(0);
        if present.ss_flags & libc::SS_DISABLE == 0 && present.ss_size >= frame + Self::LEAST {
            return Ok(None);
        }
        // SAFETY: as above.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let usable = (frame.max(libc::MINSIGSTKSZ) + Self::ROOM).next_multiple_of(page);
        let len = usable + page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os("map a stack for signal handlers"));
        }
        let stack = Self { start, len };
        let above = start.wrapping_byte_add(page);
        // SAFETY: a part of the mapping just made.
        if unsafe { libc::mprotect(above, usable, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(Error::last_os("open a stack for signal handlers"));
        }
        let ours = libc::stack_t { ss_sp: above, ss_flags: 0, ss_size: usable };
        // SAFETY: the stack stays mapped until `drop` has taken it away from the thread.
        if unsafe { libc::sigaltstack(&raw const ours, null_mut()) } != 0 {
            return Err(Error::last_os("set the stack of signal handlers"));
        }
        Ok(Some(stack))
    }
}

fn no_stack() -> libc::stack_t {
    libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let mut present = no_stack();
        // SAFETY: as in `if_missing`.
        unsafe { libc::sigaltstack(null(), &raw mut present) };
        let ours = (self.start.addr()..self.start.addr() + self.len).contains(&present.ss_sp.addr());
        if ours {
            let none = no_stack();
            // SAFETY: it only takes the stack away; the kernel refuses while a handler runs on it.
            if unsafe { libc::sigaltstack(&raw const none, null_mut()) } != 0 {
                return;
            }
        }
        // SAFETY: the mapping is this value's, and no stack of the thread any more.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

/// The program counter that a handler's context goes back to.
fn program_counter(context: *mut c_void) -> *mut usize {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel gave the context; the register is in it.
    let register = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let register = unsafe { &raw mut (*context).uc_mcontext.pc };
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as above; the first of the general registers is the counter (`REG_PC`).
    let register = unsafe { &raw mut (*context).uc_mcontext.__gregs[0] };
    register.cast()
}

/// Whether an instruction of this thread faulted. A signal that was sent has a code of 0 or less, and a memory error
/// found elsewhere (`BUS_MCEERR_AO`) belongs to no instruction.
fn is_fault(signal: c_int, code: c_int) -> bool {
    code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO)
}

unsafe extern "C" fn on_fault<const LEVEL: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel gave it.
    let fault = is_fault(signal, unsafe { (*info).si_code });
    if fault {
        let counter = program_counter(context);
        // SAFETY: it points into the kernel's frame.
        if let Some(fix) = fault::fixup(unsafe { counter.read() }) {
            // SAFETY: as above. The fix-up is made for exactly this state of the registers.
            unsafe { counter.write(fix) };
            return;
        }
    }
    let which = usize::from(signal == libc::SIGBUS);
    // SAFETY: it is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: always readable.
    let kept = unsafe { errno.read() };
    // SAFETY: what this handler was called with.
    unsafe { earlier(&SAVED[LEVEL][which], fault, signal, info, context) };
    let gave_up = !fault && current(signal).sa_sigaction == libc::SIG_DFL;
    if gave_up && SAVED[LEVEL][which].used.load(Ordering::SeqCst) {
        // Whoever was there before gave up (Rust's own handler does, for what is no overflow) over a signal that was only
        // sent. Copies go on.
        SAVED[LEVEL][which].handler.store(libc::SIG_DFL, Ordering::Relaxed);
        let ours = registration(LEVEL, 0);
        // SAFETY: `ours` is initialised, and `on_fault` is a handler with three arguments.
        unsafe { libc::sigaction(signal, &raw const ours, null_mut()) };
    }
    // SAFETY: always writable.
    unsafe { errno.write(kept) };
}

/// What would have happened without us.
///
/// # Safety
///
/// `signal`, `info` and `context` are what the kernel called a handler with.
unsafe fn earlier(
    saved: &Saved,
    fault: bool,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let action = saved.get();
    match action.sa_sigaction {
        // The kernel doesn't let a fault be ignored.
        libc::SIG_IGN if !fault => {}
        libc::SIG_IGN | libc::SIG_DFL => {
            let default = no_action();
            // SAFETY: the default action. Back at its instruction a fault comes again and ends the process, with the
            // right address and core; what was only sent has to be sent again.
            unsafe { libc::sigaction(signal, &raw const default, null_mut()) };
            if !fault {
                // SAFETY: it takes any signal.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                saved.handler.store(libc::SIG_DFL, Ordering::Relaxed);
            }
            let own = if action.sa_flags & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
            let wanted = set(bits(&action.sa_mask) | own);
            // SAFETY: the set is initialised.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const wanted, null_mut()) };
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the flag says that it was registered as a handler with three arguments.
                let call = unsafe { core::mem::transmute::<usize, Callback>(handler) };
                // SAFETY: what the kernel gave us.
                unsafe { call(signal, info, context) };
            } else {
                // SAFETY: without the flag it is one with one argument.
                let call = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
                // SAFETY: what the kernel gave us.
                unsafe { call(signal) };
            }
            // The return from the signal puts the mask back. Earlier, a signal that came meanwhile would be handled on top of
            // this frame, and the next on top of that one.
        }
    }
}
