//! Experiments: what to run, where, in which order, and what the runs say together.
//!
//! From the bottom up: [`sweep`], [`option`] and [`arm`] read what the user wrote; [`plan`] settles every run and its
//! order before anything is touched; [`topology`] makes the place (a lab of two namespaces, a server in this process, or
//! another host); [`rig`] is the seam between deciding and touching; [`runner`] drives a plan over a rig, keeps every run
//! with how it ended, and puts everything back; [`survey`] does without other ends and settings, and samples the cells of this
//! host; [`record`] makes the document of it. [`demo`] is one plan, ready-made.
//!
//! The runner is the product's claim to truth, so its failure paths are its main part: see the head of [`runner`].
#![forbid(unsafe_code)]

pub mod arm;
pub mod demo;
pub mod error;
pub mod live;
mod observed;
pub mod option;
pub mod plan;
mod profiles;
pub mod published;
pub mod record;
pub mod rig;
pub mod runner;
pub mod served;
pub mod survey;
pub mod sweep;
pub mod thresholds;
pub mod topology;
pub mod verdicts;

pub use arm::Arm;
pub use error::LabError;
pub use plan::{Axis, Plan, Rules};
pub use runner::{Event, Measured, Observer};
pub use topology::{Target, Topology};
