//! Everything after the numbers exist: the record of a measurement, and its two faces.
//!
//! A [`Document`] is what every measuring command ends in, whatever happened: complete, interrupted
//! or failed. [`json`] writes it as one valid document; [`text`] lays it out for people. Nothing here measures,
//! opens a socket or knows a workload's options beyond their names.
#![forbid(unsafe_code)]

mod error;
pub mod figures;
pub mod flame;
pub mod json;
pub mod profile;
pub mod record;
pub mod text;

pub use error::ResultsError;
pub use record::Document;
