//! The lab of an ordinary user, through a user namespace.
//!
//! A process may enter a user namespace only before it has threads, and the usual test harness is made of threads. So
//! this file has its own `main`, which runs itself again as the user nobody where it is root.

mod common;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use haul_host::privilege;
use haul_host::signal::Stop;
use haul_results::record::Status;

/// Nobody: an ordinary user that every system has.
const NOBODY: u32 = 65534;

/// Says that this process is the child.
const PART: &str = "HAUL_TEST_PART";

const NAME: &str = "an_ordinary_user_compares_settings_in_a_lab_of_his_own";

fn main() -> ExitCode {
    let wanted = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_child = env::var_os(PART).is_some();
    if !is_child && !NAME.contains(&wanted) {
        return ExitCode::SUCCESS;
    }
    let outcome = if is_child { child() } else { parent() };
    match outcome {
        Ok(()) => {
            println!("test {NAME} ... ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("test {NAME} ... FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parent() -> Result<(), Box<dyn std::error::Error>> {
    // The build directory may be closed to other users, so the child runs from a copy.
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("unprivileged");
    fs::copy(env::current_exe()?, &program)?;
    let state = folder.path().join("state");
    fs::create_dir(&state)?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777))?;
    let mut command = Command::new(&program);
    command.env_clear().env(PART, &state).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.current_dir("/");
    if privilege::effective_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn child() -> Result<(), Box<dyn std::error::Error>> {
    privilege::enter_user_namespace()?;
    let state = env::var_os(PART).ok_or("no state directory")?;
    let mut rig = common::rig("lab", state.as_ref());
    let plan = common::plan(&["off:nic.tx-nocache-copy=off", "on:nic.tx-nocache-copy=on"], 2, false);
    let measured = common::measure(&plan, &mut rig, &Stop::never()?);
    if measured.status != Status::Complete || measured.runs.len() != 4 {
        return Err(format!("{:?}: {:?}", measured.status, measured.failure).into());
    }
    Ok(())
}
