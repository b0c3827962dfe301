//! From addresses to names: the kernel's by its own list ([`kernel`]), a process's by the files it has mapped ([`user`]).
//!
//! All of it happens after a window, never in it: the kernel's list is a hundred thousand lines. A name that is not found stays an
//! unresolved address, and is counted as such.

pub(crate) mod kernel;
pub(crate) mod user;

/// What an address was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The symbol; `None` where only the module is known.
    pub(crate) symbol: Option<String>,
    /// `[kernel]`, a module of it, the name of a file, or what the kernel calls a mapping that is no file.
    pub(crate) module: String,
}
