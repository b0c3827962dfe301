//! What can go wrong between a record and its two faces.

use std::io;

/// An operation of this crate that failed, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A text that is not JSON.
    #[error("not a JSON document: {0}")]
    Syntax(serde_json::Error),
    /// An object that names a key twice: readers disagree on which one counts, so neither does.
    #[error(
        "the key '{path}' stands twice in the document, and no reader could tell which of the two counts"
    )]
    DuplicateKey {
        /// The key with the way to it, as in `runs[3].cell.flows`.
        path: String,
    },
    /// JSON, but not of ours.
    #[error("not a document of haul: {missing}; only output of --format json can be read")]
    NotHaul {
        /// What a document of haul would have.
        missing: &'static str,
    },
    /// Written by a haul from the future.
    #[error(
        "the document has schema {found}, this haul reads up to {known}: use the haul that wrote it ({version}) or a newer one"
    )]
    NewerSchema {
        /// The document's schema.
        found: u64,
        /// The newest schema this build reads.
        known: u32,
        /// The haul that wrote it.
        version: String,
    },
    /// The right schema, with a field missing or of another type.
    #[error("the document does not have the shape of schema {schema}: {source}")]
    Shape {
        /// The document's schema.
        schema: u64,
        /// Which field, and where.
        source: serde_json::Error,
    },
    /// The document cannot be put into JSON.
    #[error("the document cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
    /// The other end of the output did not take it.
    #[error("the result could not be written to standard output: {0}")]
    Write(#[source] io::Error),
    /// There is no flame graph.
    #[error("the flame graph cannot be drawn: {0}")]
    Picture(String),
    /// Nothing of that name is measured.
    #[error("'{name}' is neither a metric nor a doubt{hint}; 'haul explain' lists them")]
    UnknownName {
        /// The name as given.
        name: String,
        /// The nearest known one, as a question, or nothing.
        hint: String,
    },
}

impl ResultsError {
    /// The exit code that belongs to it: 2 where a name or a document was asked for that there is not, 1 elsewhere.
    #[must_use]
    pub fn exit(&self) -> u8 {
        if matches!(self, Self::UnknownName { .. }) { 2 } else { 1 }
    }

    /// Whether the reader of the output has gone, as `head` does once it has seen enough: a reason to end quietly.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
