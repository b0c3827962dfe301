//! The two faces of the record: what is written can be read, and what is shown can be believed.

mod any;
mod json;
mod kinds;
mod profiles;
mod sample;
mod surveys;
mod text;
