//! The binary from the outside: real processes, real kernel traffic, and one document whatever happens.
//!
//! Every test makes its two hosts out of private network namespaces and gives every haul a state directory of its own, so
//! none touches the machine or another test. They need root, and iproute2 and iperf3 where they say so, and fail by name
//! where one is missing.

mod copies;
mod documents;
mod faults;
mod hosts;
mod inside;
mod peers;
mod process;
mod settings;
mod site;
mod surveys;
mod tops;
mod traffic;
mod workloads;
