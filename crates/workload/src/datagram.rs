//! Datagrams one way.

use serde::{Deserialize, Serialize};

use crate::end::{Ends, Workers};
use crate::legs::Flows;

pub(crate) mod door;

use crate::error::{Result, WorkloadError};

/// What one end has to say of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DatagramReport {}

impl DatagramReport {
    /// Says what in a report from the other end cannot be true.
    pub fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Starts the workers of one end.
pub(crate) fn workers(_end: Ends<'_>, _flows: Flows) -> Result<Workers> {
    Err(WorkloadError::Invalid("not yet".to_owned()))
}
